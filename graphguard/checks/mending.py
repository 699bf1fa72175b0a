"""Fixes of what was found: edits of the source, each traced and proved again before it is offered."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from graphguard.checks.meshes import meshes_to_try
from graphguard.checks.requests import (
    CROSS_CHECK,
    Captured,
    CheckRequest,
    Step,
    Steps,
    as_proved,
    capture,
    confirming,
)
from graphguard.checks.together import together
from graphguard.confirm.confirmation import Confirmation
from graphguard.ir.plain import from_plain, to_plain
from graphguard.refine.finding import Finding
from graphguard.refine.outcome import Outcome
from graphguard.report.diagnostics import Diagnostic, Fix, Report, TextEdit

FIXES_PER_FINDING = 3
CANDIDATES_PER_FINDING = 8
ALTERNATIVES_PER_FINDING = 2  # candidates that are still tried once a fix is proved, less those that were in vain before it: each is traced and proved anew
SUM = "sum("  # in the text of a relation
_RIGHT, _FACTOR, _WRONG, _NOTHING = "right", "a factor", "wrong", "it cannot be recorded"
LARGE = 400  # calls of a program, such as a decoder layer, of which no alternatives are tried: that would take seconds


@dataclass(frozen=True, slots=True)
class Broken:
    """A check that is broken: its report, the diagnostics of its findings one by one, the promises that are not proved, those of them that numbers refuted, and what the others were proved to be."""

    request: CheckRequest
    report: Report
    diagnostics: tuple[Diagnostic, ...]
    spoiled: frozenset[str]
    refuted: frozenset[str]
    held: Mapping[str, str]

    @property
    def undecided(self) -> frozenset[str]:
        """The promises that are neither proved nor refuted."""
        return self.spoiled - self.refuted


def repaired(broken: Broken, findings: list[Finding]) -> Steps:
    """The report with its fixes: each is proved on top of the best ones of the findings before it, and a finding that those mend is dropped."""
    told: list[tuple[Finding, Diagnostic]] = []
    before: tuple[TextEdit, ...] = ()
    for index, finding in enumerate(findings):
        diagnostic = broken.diagnostics[index]
        if finding.promises and not broken.spoiled & set(finding.promises):
            continue  # a consequence of what is mended already
        fixes, left, headline = yield from proved_fixes(broken, index, finding, before)
        if fixes:
            best, broken = fixes[0], replace(broken, spoiled=left)
            diagnostic = replace(diagnostic, message=headline or diagnostic.message)
            before = (*before, *best.edits)
            diagnostic = replace(
                diagnostic,
                span=best.place or diagnostic.span,
                message=f"{diagnostic.message}\nfix: {best.title} (proved)",
                fixes=tuple(fixes),
            )
        told.append((finding, diagnostic))
    return replace(broken.report, diagnostics=together(told))


def proved_fixes(
    broken: Broken, index: int, finding: Finding, before: tuple[TextEdit, ...]
) -> Generator[Step, Any, tuple[list[Fix], frozenset[str], str]]:
    """The candidate edits after which the program, traced and proved again, keeps the promises that the finding spoils, and breaks no other.

    No output that was whole, or a shard, may be a sum of what the ranks hold afterwards, and what the edit mends must be right on other meshes, too (:func:`_by_chance`).
    Where another defect spoils the same promises, they must give the ranks the specification's tensors that the finding takes from them.
    What changes the specification, whose code the ranks may share, or no longer promises what was spoiled, mends nothing; where nothing else does, the specification may be
    written otherwise if it is proved to compute the same.
    Also the promises that are still broken after the best of them, and its own headline if it has one.
    """
    request, proof = broken.request, broken.report.proof
    params = {"proof": proof, "finding": index, "sources": dict(request.overlay), "before": to_plain(before)}
    answer = yield Step("prover", "candidates", params)
    proved: list[Fix] = []
    reworded: list[tuple[Fix, str, frozenset[str], str]] = []
    headline = ""
    calls = sum(broken.report.operators.get(side, 0) for side in ("spec", "impl"))
    left, tries = broken.spoiled, 0 if calls > LARGE else 1 + ALTERNATIVES_PER_FINDING
    for row in answer[:CANDIDATES_PER_FINDING]:
        fix = from_plain(Fix, row["fix"])
        if any(known.title == fix.title for known in proved):
            continue  # another way to write what is proved already
        if proved and tries <= 0:
            break
        tries -= 1
        captured = yield from capture(request, {**request.overlay, **row["texts"]})
        if captured.troubles:
            continue
        key, outcome, differing = yield from _judged(broken, finding, captured)
        if differing & broken.undecided or not {each.name for each in outcome.promises}.issuperset(finding.promises):
            continue
        failing = frozenset(outcome.failing)
        mended = failing <= broken.spoiled - set(finding.promises) and (yield from _keeps(broken, failing))
        if not mended and finding.regains and failing <= broken.spoiled:
            mended = yield Step("prover", "held", {"proof": key, "variables": list(finding.regains)})
        if not mended or _weakens(broken, outcome) or (yield from _by_chance(broken, finding, row)):
            continue
        if (yield Step("prover", "same_question", {"proof": proof, "other": key})):
            left, headline = (left, headline) if proved else (failing, row["headline"])
            proved.append(replace(fix, proved=True))
        elif fix.place in (None, finding.span):
            reworded.append((fix, key, failing, row["headline"]))
        if len(proved) == FIXES_PER_FINDING:
            break
    for fix, key, failing, told in (
        reworded if not proved else ()
    ):  # code that the specification runs as well is right, unless nothing else is the program's own
        if (yield Step("prover", "same_question", {"proof": proof, "other": key, "by_meaning": True})):
            return [replace(fix, proved=True)], failing, told
    return proved, left, headline


def _weakens(broken: Broken, outcome: Outcome) -> bool:
    """Whether an output of which every rank had all, or a part, is a sum of what the ranks hold after an edit."""
    after = {each.name: each.found for each in outcome.promises if each.holds}
    return any(SUM in after.get(name, "") and SUM not in found for name, found in broken.held.items())


def _by_chance(broken: Broken, finding: Finding, row: Mapping[str, Any]) -> Generator[Step, Any, bool]:
    """Whether numbers refute, on another mesh or with other constants, what an edit mends here; a number that an edit brings in must have been tried elsewhere.

    On two ranks a learning rate of 0.5 and a mean over the ranks are one factor; on one rank they are two.  A check that is written for its own mesh says nothing on
    another one: where what is wrong there is no factor, and is wrong without the edit as well.
    """
    request = broken.request
    tried = False
    for mesh in meshes_to_try(broken.report.mesh):
        asked = replace(request, mesh=mesh)
        said = yield from _said(asked, finding, row["texts"])
        if said is _FACTOR or (said is _WRONG and (yield from _said(asked, finding, {})) is _RIGHT):
            return True
        tried |= said is _RIGHT
    if row["varied"]:
        said = yield from _said(request, finding, row["varied"])
        if said in (_FACTOR, _WRONG):
            return True
        tried |= said is _RIGHT
    return row["brings_numbers"] and not tried


def _said(request: CheckRequest, finding: Finding, texts: Mapping[str, str]) -> Generator[Step, Any, str]:
    """What numbers say of all that a finding spoils, in the program of these texts."""
    captured = yield from capture(request, {**request.overlay, **texts})
    if captured.troubles:
        return _NOTHING
    result = yield Step("prover", "prove", {"capture": captured.data, "effort": "hasty"})
    doubtful = set(finding.promises) & set(from_plain(Outcome, result["outcome"]).failing)
    if not doubtful:
        return _RIGHT
    numbers = from_plain(Confirmation, (yield confirming(as_proved(captured, result), CROSS_CHECK)))
    wrong = doubtful & set(numbers.differing)
    if not wrong:
        return _RIGHT
    return _FACTOR if wrong & (numbers.ratios or {}).keys() else _WRONG


def _judged(
    broken: Broken, finding: Finding, captured: Captured
) -> Generator[Step, Any, tuple[str, Outcome, frozenset[str]]]:
    """The proof of an edited program: one attempt, and another one only of what numbers do not refute either; and what they refute."""
    result = yield Step(
        "prover", "prove", {"capture": captured.data, "effort": "usual" if finding.written_out else "hasty"}
    )
    outcome = from_plain(Outcome, result["outcome"])
    doubtful = set(outcome.failing) - (broken.spoiled - broken.undecided - set(finding.promises))
    if not doubtful or not broken.undecided or finding.written_out:
        return result["proof"], outcome, frozenset()
    numbers = from_plain(Confirmation, (yield confirming(as_proved(captured, result), CROSS_CHECK)))
    if doubtful.isdisjoint(numbers.differing):
        more = yield Step("prover", "finish", {"proof": result["proof"]})
        outcome = from_plain(Outcome, more["outcome"])
    return result["proof"], outcome, frozenset(numbers.differing)


def _keeps(broken: Broken, failing: frozenset[str]) -> Generator[Step, Any, bool]:
    """Whether an edit takes away no promise that more time would have proved of the broken program."""
    doubtful = failing & broken.undecided
    if not doubtful:
        return True
    more = yield Step("prover", "finish", {"proof": broken.report.proof})
    return doubtful <= set(from_plain(Outcome, more["outcome"]).failing)
