"""The way from a check to its report, without input or output of its own.

:func:`check_steps` is a generator: it yields what it needs from a process (:class:`Step`) and is sent the answer.  The command
line drives it in a loop, the language server from its event loop; both get the same reports from the same code.  Steps that do not wait for
each other are yielded as a tuple, whose answers are a tuple as well.  It also yields a :class:`Report` whenever there is something worth showing before the end (a verdict whose fixes are still being proved).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from math import isnan
from typing import Any, Literal, TypeAlias

from graphguard.checks.meshes import smaller_meshes
from graphguard.checks.wording import unknown_diagnostic
from graphguard.confirm.confirmation import Confirmation, Counterexample
from graphguard.ir import CheckRef, Trouble
from graphguard.ir.codec import check_from_plain, trouble_from_plain
from graphguard.ir.plain import from_plain, to_plain
from graphguard.refine.finding import Finding
from graphguard.refine.outcome import Outcome
from graphguard.report.diagnostics import REAL_ARITHMETIC, Diagnostic, Fix, RelatedPlace, Report, TextEdit, Verdict
from graphguard.report.registry import severity_of

CONFIRM_SECONDS = 10.0
CROSS_CHECK_SECONDS = 2.0
FIXES_PER_FINDING = 3
CANDIDATES_PER_FINDING = 8
ALTERNATIVES_PER_FINDING = 2  # candidates that are still tried once a fix is proved: each is traced and proved anew


@dataclass(frozen=True, slots=True)
class Step:
    """A request to one of the processes: the tracing ``worker`` (torch, user code) or the ``prover`` (pure Python).

    ``params`` and the answer are plain data (JSON), except captures, which travel as ``bytes``.
    """

    process: Literal["worker", "prover"]
    method: str
    params: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """One check on one mesh.

    ``overlay`` maps absolute paths to texts that stand in for the files; ``root`` is the project's folder.  ``levels`` are severities by rule from
    the configuration.  ``fixes`` asks for repairs; ``cross_check`` runs the numbers beside a proof as well;
    ``relations`` asks for the relation of every tensor of the specification, which costs more than the verdict;
    ``smallest`` for a counterexample on a smaller mesh, where the check can be run on one.
    """

    file: str
    name: str
    mesh: dict[str, int] | None
    root: str
    overlay: Mapping[str, str] = field(default_factory=dict)
    levels: Mapping[str, str] = field(default_factory=dict)
    fixes: bool = True
    cross_check: bool = True
    relations: bool = True
    smallest: bool = True
    cache: bool = True
    timeout: float = 60.0


Steps: TypeAlias = Generator[Step | tuple[Step, ...] | Report, Any, Report]


@dataclass(frozen=True, slots=True)
class _Captured:
    """The worker's answer: the capture's bytes for the prover, and what the steps themselves need of it."""

    data: bytes
    check: CheckRef
    mesh: dict[str, int]
    troubles: tuple[Trouble, ...]
    summary: dict[str, Any]
    cached: bool


def check_steps(request: CheckRequest) -> Steps:
    """Trace, prove, confirm, diagnose and repair one check; returns its report."""
    captured = yield from _capture(request, dict(request.overlay))
    report = Report(
        check=captured.check,
        mesh=captured.mesh,
        verdict=None,
        assumed=tuple(captured.summary["assumed"]),
        seconds=dict(captured.summary["seconds"]),
        operators=dict(captured.summary["operators"]),
        sources=dict(captured.summary["sources"]),
        cached=captured.cached,
    )
    if captured.troubles:
        return _troubled(report, captured.troubles, request)
    return (yield from _judge(request, captured, report))


def _judge(request: CheckRequest, captured: _Captured, report: Report) -> Steps:
    answer, outcome, numbers = yield from _proved(request, captured)
    proof = answer["proof"]
    relations = {}
    if request.relations:
        relations = yield Step("prover", "relations", {"proof": proof})
    report = replace(
        report,
        relations=relations,
        proof=proof,
        assumed=_merged(report.assumed, outcome.assumed),
        cautions=_merged(outcome.cautions, _partial_sums(outcome)),
        seconds={**report.seconds, "infer": answer["seconds"]},
        operators={**report.operators, "evaluated": answer.get("evaluated", sum(report.operators.values()))},
    )
    if outcome.proved:
        report = replace(report, assumed=_merged((REAL_ARITHMETIC,), report.assumed))
    if outcome.proved and numbers is None:
        return replace(report, verdict=Verdict.REFINES)
    if numbers is None:
        numbers = from_plain(Confirmation, (yield _confirming(captured, CONFIRM_SECONDS)))
    report = replace(report, seconds={**report.seconds, "confirm": numbers.seconds})
    if outcome.proved:
        return _cross_checked(report, numbers, request)
    if numbers.status == "equal":
        ways = [{"patient": True}] * outcome.hurried + [{"ignored": False}] * answer.get("ignored", False)
        for way in ways:
            proved = yield from _proved_otherwise(request, captured, report, way)
            if proved is not None:
                return proved
    broken = numbers.status == "differs" and not outcome.conflicts
    report = replace(
        report,
        verdict=Verdict.BROKEN if broken else Verdict.UNKNOWN,
        counterexample=numbers.counterexample if broken else None,
        assumed=_merged(report.assumed, tuple(f"reference kernel: {name}" for name in numbers.kernels)),
    )
    rows = yield Step(
        "prover", "diagnose", {"proof": proof, "confirmation": to_plain(numbers), "sources": dict(request.overlay)}
    )
    findings = [from_plain(Finding, row) for row in rows]
    diagnostics = tuple(_diagnostic(finding, report, request) for finding in findings)
    report = replace(report, diagnostics=diagnostics or (unknown_diagnostic(report.check, outcome),))
    if not broken:
        return report
    yield report
    return (yield from _mended_and_shown(request, report, findings, outcome, refuted(outcome, numbers)))


def _proved(
    request: CheckRequest, captured: _Captured
) -> Generator[Step | tuple[Step, ...], Any, tuple[dict[str, Any], Outcome, Confirmation | None]]:
    """The prover's answer, its outcome, and what numbers say where they are asked.

    Beside numbers one attempt is made first: what they refute no other attempt proves.
    """
    if not request.cross_check:
        answer = yield Step("prover", "prove", {"capture": captured.data})
        return answer, from_plain(Outcome, answer["outcome"]), None
    proving = Step("prover", "prove", {"capture": captured.data, "hasty": True})
    answer, row = yield proving, _confirming(captured, CROSS_CHECK_SECONDS)
    outcome, numbers = from_plain(Outcome, answer["outcome"]), from_plain(Confirmation, row)
    if not (outcome.proved or _at_leisure(numbers)):
        numbers = from_plain(Confirmation, (yield _confirming(captured, CONFIRM_SECONDS)))
    if not outcome.proved and not refuted(outcome, numbers):
        more = yield Step("prover", "finish", {"proof": answer["proof"]})
        outcome = from_plain(Outcome, more["outcome"])
        answer = {**answer, "seconds": answer["seconds"] + more["seconds"]}
    return answer, outcome, numbers


def refuted(outcome: Outcome, numbers: Confirmation) -> bool:
    """Whether numbers refute everything that is not proved."""
    return numbers.status == "differs" and set(outcome.failing) <= set(numbers.differing)


def _mended_and_shown(
    request: CheckRequest, report: Report, findings: list[Finding], outcome: Outcome, hasty: bool
) -> Steps:
    """The report with proved fixes, and with the smallest counterexample that was found.

    Where one attempt proved all that numbers do not refute, one proves of a mended program all that a fix must keep.
    """
    if request.fixes:
        spoiled = frozenset(outcome.failing)
        report = yield from _repaired(request, report, findings, spoiled, hasty)
    if request.smallest and findings and findings[0].span is not None and smaller_meshes(report.mesh):
        yield report
        report = replace(report, counterexample=(yield from _smallest(request, report, findings[0])))
    return report


def _proved_otherwise(
    request: CheckRequest, captured: _Captured, report: Report, way: dict[str, Any]
) -> Generator[Step, Any, Report | None]:
    """The report of a proof with more time, or for targets of which none is ignored, where numbers, with ignored ones, agree."""
    answer = yield Step("prover", "prove", {"capture": captured.data, **way})
    outcome = from_plain(Outcome, answer["outcome"])
    if not outcome.proved:
        return None
    relations = {}
    if request.relations:
        relations = yield Step("prover", "relations", {"proof": answer["proof"]})
    return replace(
        report,
        verdict=Verdict.REFINES,
        relations=relations,
        proof=answer["proof"],
        assumed=_merged((REAL_ARITHMETIC,), report.assumed, outcome.assumed),
    )


def _smallest(request: CheckRequest, report: Report, first: Finding) -> Generator[Step, Any, Counterexample | None]:
    """A counterexample on the smallest mesh on which the same thing is found at the same place; else the one that there is."""
    for mesh in smaller_meshes(report.mesh):
        captured = yield from _capture(replace(request, mesh=mesh), dict(request.overlay))
        if captured.troubles:
            continue  # the program is not written for this mesh
        proved = yield Step("prover", "prove", {"capture": captured.data, "hasty": True})
        if proved["outcome"]["proved"]:
            continue
        row = yield _confirming(captured, CROSS_CHECK_SECONDS)
        numbers = from_plain(Confirmation, row)
        if numbers.status != "differs" or numbers.counterexample is None:
            continue
        params = {"proof": proved["proof"], "confirmation": row, "sources": dict(request.overlay)}
        found = [from_plain(Finding, each) for each in (yield Step("prover", "diagnose", params))]
        same = found and (found[0].rule, found[0].span) == (first.rule, first.span)
        if same and _alike(numbers.counterexample, report.counterexample):
            return numbers.counterexample
    return report.counterexample


def _alike(small: Counterexample, large: Counterexample | None) -> bool:
    """Whether two counterexamples show the same: an output that lacks elements on the smaller mesh alone is of a program that is not written for it."""
    return large is None or (small.promise, isnan(small.found)) == (large.promise, isnan(large.found))


def _capture(request: CheckRequest, overlay: dict[str, str]) -> Generator[Step, Any, _Captured]:
    answer = yield Step(
        "worker",
        "capture",
        {
            "file": request.file,
            "name": request.name,
            "mesh": request.mesh,
            "root": request.root,
            "overlay": overlay,
            "cache": request.cache,
            "timeout": request.timeout,
        },
    )
    summary = answer["summary"]
    return _Captured(
        data=answer["capture"],
        check=check_from_plain(summary["check"]),
        mesh=summary["mesh"],
        troubles=tuple(trouble_from_plain(row) for row in summary["troubles"]),
        summary=summary,
        cached=bool(answer.get("cached", False)),
    )


def _confirming(captured: _Captured, seconds: float) -> Step:
    return Step("worker", "confirm", {"capture": captured.data, "promises": None, "seconds": seconds})


def _at_leisure(numbers: Confirmation) -> bool:
    """Whether more time would not have told more than the short run beside the proof did."""
    return numbers.status != "not-run" and not numbers.reason and numbers.seconds < CROSS_CHECK_SECONDS


def _troubled(report: Report, troubles: tuple[Trouble, ...], request: CheckRequest) -> Report:
    """A program that was not captured has no verdict, except that ranks whose collectives do not match are broken as they stand."""
    deadlock = all(trouble.rule == "collective-mismatch" for trouble in troubles)
    diagnostics = tuple(
        Diagnostic(
            code=trouble.rule,
            rule=trouble.rule,
            message=trouble.message,
            severity=severity_of(trouble.rule, request.levels),
            span=trouble.span or report.check.span,
            related=tuple(RelatedPlace(span, text) for span, text in trouble.related),
        )
        for trouble in troubles
    )
    return replace(report, verdict=Verdict.BROKEN if deadlock else None, diagnostics=diagnostics)


def _cross_checked(report: Report, numbers: Confirmation, request: CheckRequest) -> Report:
    """A proof that numbers contradict is a defect of ours: it is never shown as ``refines``."""
    if numbers.status != "differs":
        return replace(report, verdict=Verdict.REFINES)
    message = (
        "the proof and the numbers disagree: please report this check\n"
        f"numbers: {numbers.counterexample if numbers.counterexample else numbers.reason}"
    )
    diagnostic = Diagnostic("unproved", "unproved", message, severity_of("unproved", request.levels), report.check.span)
    return replace(report, verdict=Verdict.UNKNOWN, diagnostics=(diagnostic,))


def _diagnostic(finding: Finding, report: Report, request: CheckRequest) -> Diagnostic:
    lines = [finding.headline]
    if finding.needed:
        lines.append(f"needed: {finding.needed}")
    if finding.found:
        lines.append(f"found:  {finding.found}")
    related = tuple(RelatedPlace(place.span, place.message) for place in finding.related)
    return Diagnostic(
        code=finding.rule,
        rule=finding.rule,
        message="\n".join(lines),
        severity=severity_of(finding.rule, request.levels),
        span=finding.span or report.check.span,
        related=related,
    )


def _repaired(
    request: CheckRequest, report: Report, findings: list[Finding], spoiled: frozenset[str], hasty: bool
) -> Steps:
    """The report with its fixes: each is proved on top of the best ones of the findings before it, and a finding that those mend is dropped."""
    diagnostics: list[Diagnostic] = []
    before: tuple[TextEdit, ...] = ()
    for index, finding in enumerate(findings):
        diagnostic = report.diagnostics[index]
        if finding.promises and not spoiled & set(finding.promises):
            continue  # a consequence of what is mended already
        fixes, left = yield from _proved_fixes(request, report, index, finding, spoiled, before, hasty)
        if fixes:
            best, spoiled = fixes[0], left
            before = (*before, *best.edits)
            diagnostic = replace(
                diagnostic,
                span=best.place or diagnostic.span,
                message=f"{diagnostic.message}\nfix: {best.title} (proved)",
                fixes=tuple(fixes),
            )
        diagnostics.append(diagnostic)
    return replace(report, diagnostics=tuple(diagnostics))


def _proved_fixes(
    request: CheckRequest,
    report: Report,
    index: int,
    finding: Finding,
    spoiled: frozenset[str],
    before: tuple[TextEdit, ...],
    hasty: bool,
) -> Generator[Step, Any, tuple[list[Fix], frozenset[str]]]:
    """The candidate edits after which the program, traced and proved again, keeps the promises that the finding spoils, and breaks no other.

    Where another defect spoils the same promises, they must give the ranks the specification's tensors that the finding takes from them.
    What changes the specification, whose code the ranks may share, or no longer promises what was spoiled, mends nothing.
    Also the promises that are still broken after the best of them.
    """
    params = {"proof": report.proof, "finding": index, "sources": dict(request.overlay), "before": to_plain(before)}
    answer = yield Step("prover", "candidates", params)
    proved: list[Fix] = []
    left, alternatives = spoiled, ALTERNATIVES_PER_FINDING
    for row in answer[:CANDIDATES_PER_FINDING]:
        fix = from_plain(Fix, row["fix"])
        if any(known.title == fix.title for known in proved):
            continue  # another way to write what is proved already
        alternatives -= bool(proved)
        if alternatives < 0:
            break
        captured = yield from _capture(request, {**request.overlay, **row["texts"]})
        if captured.troubles:
            continue
        result = yield Step("prover", "prove", {"capture": captured.data, "hasty": hasty and not finding.written_out})
        outcome = from_plain(Outcome, result["outcome"])
        if not {promise.name for promise in outcome.promises}.issuperset(finding.promises):
            continue
        broken = frozenset(outcome.failing)
        mended = broken <= spoiled - set(finding.promises)
        if not mended and finding.regains and broken <= spoiled:
            mended = yield Step("prover", "held", {"proof": result["proof"], "variables": list(finding.regains)})
        if mended and (yield Step("prover", "same_question", {"proof": report.proof, "other": result["proof"]})):
            left = left if proved else broken
            proved.append(replace(fix, proved=True))
        if len(proved) == FIXES_PER_FINDING:
            break
    return proved, left


def _partial_sums(outcome: Outcome) -> tuple[str, ...]:
    """A partial sum is a clean relation where none was promised, but seldom what a program's author means by its output."""
    return tuple(
        f"{promise.found}: no rank holds {promise.name} whole; out_relations='replicate' would demand it"
        for promise in outcome.promises
        if promise.holds and promise.needed == f"a clean relation for {promise.name}" and "sum(" in promise.found
    )


def _merged(*lists: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for texts in lists for text in texts))
