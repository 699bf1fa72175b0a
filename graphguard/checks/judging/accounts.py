"""Accounts of a factor by the number of ranks of a mesh axis: where the axis has one rank, nothing is wrong if they are right.

On two ranks a mean over them and a loss that is halved look the same.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from graphguard.checks.judging.requests import (
    CROSS_CHECK,
    CheckRequest,
    Step,
    as_proved,
    capture,
    confirming,
    diagnostic_of_finding,
    is_long,
)
from graphguard.checks.judging.together import together
from graphguard.confirm.confirmation import Confirmation
from graphguard.ir import Span
from graphguard.ir.plain import from_plain, to_plain
from graphguard.refine.finding import Finding
from graphguard.repair.writing.words import axis_told
from graphguard.report.diagnostics import Diagnostic, Report
from graphguard.report.folding import mesh_text


@dataclass(frozen=True, slots=True)
class _Elsewhere:
    """What is wrong on another mesh: promises, those of them that are wrong by a factor alone, and what is said of it, with the mesh where that was found."""

    mesh: dict[str, int]
    differing: frozenset[str]
    scaled: frozenset[str]
    findings: tuple[tuple[dict[str, int], Finding], ...] = ()


def told_apart(
    request: CheckRequest, report: Report, findings: Sequence[Finding], told: Sequence[Diagnostic]
) -> Generator[Step, Any, tuple[Diagnostic, ...]]:
    """What is said of findings, after those that name a factor by an axis were looked at where that has one rank.

    What is wrong by a factor there as well is told as it is told there; what is wrong otherwise there, or cannot be recorded there, gets both accounts.
    """
    known: dict[str, _Elsewhere | None] = {}
    found: list[Diagnostic] = []
    for finding, diagnostic in zip(findings, told, strict=True):
        axis = axis_told(finding.headline, report.mesh)
        if axis and axis not in known:
            known[axis] = yield from _elsewhere(request, {**report.mesh, axis: 1})
        others = {other.span for other in findings if other is not finding}
        found.append(_settled(finding, diagnostic, known[axis], others, report, request) if axis else diagnostic)
    return tuple(found)


def told_at_once(
    request: CheckRequest, report: Report, findings: Sequence[Finding], told: Sequence[Diagnostic]
) -> Generator[Step, Any, tuple[Diagnostic, ...]]:
    """The same where what is said is waited for: of a program that takes long to be recorded, both accounts of every factor that is named by an axis."""
    if not is_long(request, report):
        return (yield from told_apart(request, report, findings, told))
    mesh = report.mesh
    pairs = zip(findings, told, strict=True)
    return tuple(_in_doubt(one, mesh) if axis_told(finding.headline, mesh) else one for finding, one in pairs)


def _settled(
    finding: Finding,
    told: Diagnostic,
    other: _Elsewhere | None,
    others: Collection[Span | None],
    report: Report,
    request: CheckRequest,
) -> Diagnostic:
    """A diagnostic after a look at where its axis has one rank; what stands at the place of another finding here, in ``others``, is another defect there as well."""
    if other is None:
        return _in_doubt(told, report.mesh)
    wrong = set(finding.promises) & other.differing
    if not wrong:
        return told
    there_too = [row for row in other.findings if wrong & set(row[1].promises)]
    if not there_too:
        return _in_doubt(told, report.mesh)
    same = [row for row in there_too if row[1].span not in others]
    if not same:
        return told
    mesh, first = same[0]
    if wrong & other.scaled:
        there = together([(one, diagnostic_of_finding(one, report, request)) for where, one in same if where == mesh])
        return _with_note(there[0], f"note: on {mesh_text(mesh)} it is wrong by a factor as well, and is told as there")
    line = f" (line {first.span.line})" if first.span is not None else ""
    return _with_note(told, f"or: {first.headline}{line}: on {mesh_text(mesh)} something is wrong as well")


def _in_doubt(told: Diagnostic, mesh: dict[str, int]) -> Diagnostic:
    return _with_note(
        told, f"or: the program brings the factor in as a number: on {mesh_text(mesh)} both look the same"
    )


def _with_note(told: Diagnostic, note: str) -> Diagnostic:
    return replace(told, message=f"{told.message}\n{note}")


def _elsewhere(request: CheckRequest, mesh: dict[str, int]) -> Generator[Step, Any, _Elsewhere | None]:
    """What is wrong on another mesh; None where the check cannot be recorded on it."""
    captured = yield from capture(replace(request, mesh=mesh), dict(request.overlay))
    if captured.troubles:
        return None
    proved = yield Step("prover", "prove", {"capture": captured.data, "effort": "hasty"})
    if proved["outcome"]["proved"]:
        return _Elsewhere(mesh, frozenset(), frozenset())
    row = yield confirming(as_proved(captured, proved), CROSS_CHECK)
    numbers = from_plain(Confirmation, row)
    if numbers.status != "differs":
        return _Elsewhere(mesh, frozenset(), frozenset())
    params = {"proof": proved["proof"], "confirmation": to_plain(numbers), "sources": dict(request.overlay)}
    rows = yield Step("prover", "diagnose", params)
    findings = tuple((mesh, from_plain(Finding, each)) for each in rows)
    differing, scaled = frozenset(numbers.differing), frozenset(numbers.ratios or {})
    axis = next((axis for _, one in findings if (axis := axis_told(one.headline, mesh))), "")
    further = (yield from _elsewhere(request, {**mesh, axis: 1})) if axis else None
    if further is not None:  # what is wrong there is told as it is there
        findings = (*(row for row in further.findings if further.scaled & set(row[1].promises)), *findings)
    return _Elsewhere(mesh, differing, scaled, findings)
