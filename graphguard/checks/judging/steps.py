"""The way from a check to its report, without input or output of its own.

:func:`check_steps` is a generator: it yields what it needs from a process (:class:`Step`) and is sent the answer.  The command
line drives it in a loop, the language server from its event loop; both get the same reports from the same code.  Steps that do not wait for
each other are yielded as a tuple, whose answers are a tuple as well.  It also yields a :class:`Report` whenever there is something worth showing before the end (a verdict whose fixes are still being proved).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from functools import partial
from math import isnan
from typing import Any

from graphguard.checks.judging.accounts import told_apart, told_at_once
from graphguard.checks.judging.arrangements import cautions_of
from graphguard.checks.judging.elsewhere import elsewhere, on_one_machine
from graphguard.checks.judging.fewer import on_fewer
from graphguard.checks.judging.mending import repaired
from graphguard.checks.judging.mends import Broken
from graphguard.checks.judging.meshes import smaller_meshes
from graphguard.checks.judging.requests import (
    CROSS_CHECK,
    Captured,
    CheckRequest,
    Step,
    Steps,
    as_proved,
    capture,
    confirming,
    diagnostic_of_finding,
    is_long,
)
from graphguard.checks.judging.rewritten import diagnostic_of, doubted, mended
from graphguard.checks.judging.timed import timed
from graphguard.checks.judging.together import together
from graphguard.checks.judging.unshared import told_by_processes, turned, with_asked
from graphguard.confirm.confirmation import Confirmation, Counterexample
from graphguard.ir import CheckRef, Trouble
from graphguard.ir.fuel import SECOND
from graphguard.ir.plain import from_plain, to_plain
from graphguard.refine.finding import Finding
from graphguard.refine.outcome import Outcome
from graphguard.report.diagnostics import (
    OUT_OF_FUEL,
    REAL_ARITHMETIC,
    Diagnostic,
    Numbers,
    Report,
    Verdict,
)
from graphguard.report.registry import reported

CONFIRM = 10 * SECOND
LEAST = 10.0  # seconds that an edited program may take to be recorded, and so many
TIMES = 10  # times those of the program itself
# What no numbers are needed for: a job that hangs, that exchanges other memory than it shows, that reads what is not there yet or not there any more, whose ranks read other samples, or of which a rank returns another constant, or nothing.
_BROKEN_AS_THEY_STAND = frozenset(("collective-mismatch", "missing-wait", "wrong-relation", "wrong-shard"))


def check_steps(request: CheckRequest) -> Steps:
    """Trace, prove, confirm, diagnose and repair one check; returns its report, which says where the time went."""
    return timed(_checked(request))


def _checked(request: CheckRequest) -> Steps:
    captured = yield from capture(request, dict(request.overlay))
    report = Report(
        check=captured.check,
        mesh=captured.mesh,
        verdict=None,
        assumed=tuple(captured.summary["assumed"]),
        not_compared=tuple(captured.summary["not_compared"]),
        cautions=tuple(captured.summary["cautions"]),
        operators=dict(captured.summary["operators"]),
        sources=dict(captured.summary["sources"]),
        cached=captured.cached,
        depends=captured.depends,
    )
    report = yield from _judged(request, captured, report)
    if report.verdict is Verdict.REFINES:
        report = yield from turned(request, captured, report, _judged)
    return (yield from elsewhere(request, captured, report, _judged)) if on_one_machine(report) else report


def _judged(request: CheckRequest, captured: Captured, report: Report) -> Steps:
    """The report of what was captured."""
    if captured.troubles:
        report = _troubled(report, captured.troubles, request)
        told = yield from told_by_processes(request, captured, report)
        if told is not None:
            return replace(report, diagnostics=(told,))
        if not any(trouble.mendings for trouble in captured.troubles):
            return report
        if request.fixes:
            yield report
        return (yield from mended(request, report, captured.troubles))
    few = yield from on_fewer(request, captured, report, _judge)
    report = few or (yield from _judge(request, captured, report))
    if request.audit and report.verdict is Verdict.REFINES:
        return (yield from _audited(captured, report))
    return report


def _audited(captured: Captured, report: Report) -> Generator[Step, Any, Report]:
    """The report, with what every step of a proof came to when it was read again: a step that does not hold leaves nothing proved."""
    answer = yield Step("prover", "audit", {"capture": captured.data})
    report = replace(report, audit=answer["text"])
    if not answer["wrong"]:
        return report
    message = (
        f"the audit found {answer['text']}\n"
        "This is a defect of GraphGuard: its engine took a step that is no equation, so nothing is proved. Please report it with this check"
    )
    found = Diagnostic("unproved", "unproved", message, "warning", report.check.span)
    return replace(report, verdict=Verdict.UNKNOWN, diagnostics=(*report.diagnostics, found))


def _judge(request: CheckRequest, captured: Captured, report: Report, *, retold: bool = True) -> Steps:
    answer, outcome, numbers = yield from _proved(request, captured)
    captured = as_proved(captured, answer)
    proof = answer["proof"]
    report = yield from _related(request, replace(report, proof=proof))
    report = replace(
        report,
        assumed=_merged(report.assumed, outcome.assumed),
        cautions=_merged(report.cautions, outcome.cautions, cautions_of(outcome)),
        operators={**report.operators, "evaluated": answer.get("evaluated", sum(report.operators.values()))},
    )
    if outcome.proved:
        report = replace(report, assumed=_merged((REAL_ARITHMETIC,), report.assumed))
    if outcome.proved and numbers is None:
        return replace(
            report, verdict=Verdict.REFINES, numbers=Numbers("not-run", reason="this run asks for proofs alone")
        )
    if numbers is None:
        numbers = from_plain(Confirmation, (yield confirming(captured, CONFIRM)))
    report = replace(report, numbers=_run_on(numbers))
    if outcome.proved and (numbers.status != "differs" or numbers.undefined is None):
        return _cross_checked(report, numbers, request)
    if numbers.status == "equal":
        ways = [{"effort": "patient"}] * outcome.hurried + [{"ignored": False}] * answer.get("ignored", False)
        for way in ways:
            report = yield from _proved_otherwise(request, captured, report, way)
            if report.verdict is Verdict.REFINES:
                return report
    broken = numbers.status == "differs"
    report = replace(
        report,
        verdict=Verdict.BROKEN if broken else Verdict.UNKNOWN,
        counterexample=numbers.counterexample if broken else None,
        assumed=_merged(report.assumed, tuple(f"reference kernel: {name}" for name in numbers.kernels)),
    )
    if broken and (alone := (yield from told_by_processes(request, captured, report))) is not None:
        return replace(report, diagnostics=(alone,))
    rows = yield Step(
        "prover", "diagnose", {"proof": proof, "confirmation": to_plain(numbers), "sources": dict(request.overlay)}
    )
    findings = [from_plain(Finding, row) for row in rows]
    diagnostics = tuple(with_asked(diagnostic_of_finding(finding, report, request), captured) for finding in findings)
    settled = (yield from told_at_once(request, report, findings, diagnostics)) if broken else diagnostics
    shown = together(list(zip(findings, settled, strict=True)))
    report = replace(report, diagnostics=shown or (_left_open(report.check, outcome),))
    if not broken or outcome.proved:
        return report  # no edit of what was recorded is proved to be defined
    if captured.doubts and (doubtful := (yield from doubted(request, captured, report))) is not None:
        return doubtful
    yield report
    if request.fixes:
        told = (yield from told_apart(request, report, findings, diagnostics)) if is_long(request, report) else settled
        held = {each.name: each.found for each in outcome.promises if each.holds}
        failed = Broken(
            _hurried(request, captured), report, told, frozenset(outcome.failing), frozenset(numbers.differing), held
        )
        report = yield from repaired(failed, findings, partial(_judge, retold=False) if retold else None)
    return (yield from _shown(request, report, findings, frozenset(numbers.differing)))


def _hurried(request: CheckRequest, captured: Captured) -> CheckRequest:
    """The request for edited programs: one that takes many times as long to record as the program itself hangs."""
    taken: float = sum(captured.summary.get("seconds", {}).values())
    return replace(request, timeout=min(request.timeout, LEAST + TIMES * taken))


def _proved(
    request: CheckRequest, captured: Captured
) -> Generator[Step | tuple[Step, ...], Any, tuple[dict[str, Any], Outcome, Confirmation | None]]:
    """The prover's answer, its outcome, and what numbers say where they are asked.

    Beside numbers one attempt is made first: what they refute no other attempt proves, and something refuted is enough for the verdict.
    """
    if not request.cross_check:
        answer = yield Step("prover", "prove", {"capture": captured.data})
        return answer, from_plain(Outcome, answer["outcome"]), None
    proving = Step("prover", "prove", {"capture": captured.data, "effort": "hasty"})
    answer, row = yield proving, confirming(captured, CROSS_CHECK)
    outcome, numbers = from_plain(Outcome, answer["outcome"]), from_plain(Confirmation, row)
    proved = as_proved(captured, answer)
    if proved is not captured or not (outcome.proved or _at_leisure(numbers)):
        numbers = from_plain(Confirmation, (yield confirming(proved, CONFIRM)))
    if not outcome.proved and not refuted(outcome, numbers):
        more = yield Step("prover", "finish", {"proof": answer["proof"]})
        outcome = from_plain(Outcome, more["outcome"])
    return answer, outcome, numbers


def refuted(outcome: Outcome, numbers: Confirmation) -> bool:
    """Whether numbers refute some of what is not proved: the verdict stands, then, whatever more time would prove of the rest.

    A proof may still say that what differs is only rounded elsewhere.
    """
    failing = set(outcome.failing)
    return (
        numbers.status == "differs"
        and not numbers.rounding
        and (not failing or not failing.isdisjoint(numbers.differing))
    )


def _shown(request: CheckRequest, report: Report, findings: list[Finding], differing: frozenset[str]) -> Steps:
    """The report with the smallest counterexample that was found; ``differing`` are the promises that numbers refute here."""
    if request.smallest and findings and findings[0].span is not None and smaller_meshes(report.mesh):
        yield report
        report = replace(report, counterexample=(yield from _smallest(request, report, differing)))
    return report


def _related(request: CheckRequest, report: Report) -> Generator[Step, Any, Report]:
    """The report with the relation of every tensor, where they are asked for."""
    if not request.relations:
        return report
    relations = yield Step("prover", "relations", {"proof": report.proof})
    layouts = yield Step("prover", "layouts", {"proof": report.proof})
    return replace(report, relations=relations, layouts=layouts)


def _proved_otherwise(
    request: CheckRequest, captured: Captured, report: Report, way: dict[str, Any]
) -> Generator[Step, Any, Report]:
    """The report of a proof with more time, or for targets of which none is ignored, where numbers, with ignored ones, agree; else what there was, and whether time ran out."""
    answer = yield Step("prover", "prove", {"capture": captured.data, **way})
    outcome = from_plain(Outcome, answer["outcome"])
    if not outcome.proved:
        return replace(report, cautions=_merged(report.cautions, (OUT_OF_FUEL,) * outcome.hurried))
    report = yield from _related(request, replace(report, proof=answer["proof"]))
    return replace(
        report,
        verdict=Verdict.REFINES,
        assumed=_merged((REAL_ARITHMETIC,), report.assumed, outcome.assumed),
    )


def _smallest(
    request: CheckRequest, report: Report, differing: frozenset[str]
) -> Generator[Step, Any, Counterexample | None]:
    """A counterexample on the smallest mesh on which numbers refute the same promises; else the one that there is."""
    for mesh in smaller_meshes(report.mesh):
        captured = yield from capture(replace(request, mesh=mesh), dict(request.overlay))
        if captured.troubles:
            continue  # the program is not written for this mesh
        proved = yield Step("prover", "prove", {"capture": captured.data, "effort": "hasty"})
        if proved["outcome"]["proved"]:
            continue
        numbers = from_plain(Confirmation, (yield confirming(as_proved(captured, proved), CROSS_CHECK)))
        if numbers.status != "differs" or numbers.counterexample is None or differing != set(numbers.differing):
            continue
        if _alike(numbers.counterexample, report.counterexample):
            return numbers.counterexample
    return report.counterexample


def _alike(small: Counterexample, large: Counterexample | None) -> bool:
    """Whether two counterexamples show the same: an output that lacks elements on the smaller mesh alone is of a program that is not written for it."""
    return large is None or (small.promise, isnan(small.found)) == (large.promise, isnan(large.found))


def _at_leisure(numbers: Confirmation) -> bool:
    """Whether more time would not have told more than the short run beside the proof did."""
    return numbers.status != "not-run" and not numbers.reason and numbers.steps < CROSS_CHECK


def _troubled(report: Report, troubles: tuple[Trouble, ...], request: CheckRequest) -> Report:
    """A program that was not captured has no verdict, except that ranks whose collectives do not match, that do not wait for them, or that return something else, are broken as they stand."""
    broken = all(trouble.rule in _BROKEN_AS_THEY_STAND for trouble in troubles)
    diagnostics = tuple(diagnostic_of(trouble, report, request) for trouble in troubles)
    return replace(report, verdict=Verdict.BROKEN if broken else None, diagnostics=diagnostics)


def _run_on(said: Confirmation) -> Numbers:
    """How far numbers went, for the report."""
    reason = (
        "only in what casts to narrower types round"
        if said.rounding
        else said.reason
        if said.status == "not-run"
        else ""
    )
    return Numbers(said.status, said.draws, said.reduced, reason)


def _cross_checked(report: Report, numbers: Confirmation, request: CheckRequest) -> Report:
    """A proof that numbers contradict is a defect of ours: it is never shown as ``refines``."""
    if numbers.status != "differs" or numbers.rounding:
        return replace(report, verdict=Verdict.REFINES)
    message = (
        "the proof and the numbers disagree: please report this check\n"
        f"numbers: {numbers.counterexample if numbers.counterexample else numbers.reason}"
    )
    told = reported("unproved", message, request.levels, report.check.span)
    return replace(report, verdict=Verdict.UNKNOWN, diagnostics=(told,))


def _left_open(check: CheckRef, outcome: Outcome) -> Diagnostic:
    """What to show at the check itself where nothing better is known: which promises stayed open, and why."""
    open_promises = [promise for promise in outcome.promises if not promise.holds]
    names = ", ".join(promise.name for promise in open_promises[:4]) or "the outputs"
    lines = [f"neither proved nor refuted: {names}"]
    lines += [f"{promise.name}: {promise.reason}" for promise in open_promises[:4] if promise.reason]
    lines += [f"{gap.op} stayed closed: {gap.reason}" for gap in outcome.gaps[:4]]
    return Diagnostic("unproved", "unproved", "\n".join(lines), "warning", check.span)


def _merged(*lists: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for texts in lists for text in texts))
