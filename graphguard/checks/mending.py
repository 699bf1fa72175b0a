"""Fixes of what was found: edits of the source, each traced and proved again before it is offered."""

from __future__ import annotations

import os
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

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
LARGE = 400  # calls of a program, such as a decoder layer, of which no alternatives are tried: that would take seconds


@dataclass(frozen=True, slots=True)
class Broken:
    """A check that is broken: its report, the diagnostics of its findings one by one, the promises that are not proved, and those of them that numbers refuted."""

    request: CheckRequest
    report: Report
    diagnostics: tuple[Diagnostic, ...]
    spoiled: frozenset[str]
    refuted: frozenset[str]

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
                message=f"{diagnostic.message}\nfix: {best.title} (proved){_by_hand(best)}",
                fixes=tuple(fix for fix in fixes if not _by_hand(fix)),
            )
        told.append((finding, diagnostic))
    return replace(broken.report, diagnostics=together(told))


def _by_hand(fix: Fix) -> str:
    """Where a fix must be written and what it says there, if a file that it changes cannot be written by this user; empty elsewhere."""
    locked = {edit.span.file for edit in fix.edits if os.path.exists(edit.span.file)}
    locked = {file for file in locked if not os.access(file, os.W_OK)}
    edits = [edit for edit in fix.edits if edit.span.file in locked]
    lines = (f"line {edit.span.line}: {edit.text.strip() or 'nothing'}" for edit in edits)
    return f", in {', '.join(sorted(locked))}, which cannot be written from here\n{'; '.join(lines)}" if locked else ""


def proved_fixes(
    broken: Broken, index: int, finding: Finding, before: tuple[TextEdit, ...]
) -> Generator[Step, Any, tuple[list[Fix], frozenset[str], str]]:
    """The candidate edits after which the program, traced and proved again, keeps the promises that the finding spoils, and breaks no other.

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
        if not mended:
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
