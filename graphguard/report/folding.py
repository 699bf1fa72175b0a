"""One finding for one defect: what several meshes or checks find at the same place is told once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from graphguard.ir.capture import CheckRef
from graphguard.ir.spans import Span
from graphguard.report.diagnostics import Diagnostic, Report

Identity = tuple[str, str, int]
"""What makes two findings at one place the same: the rule, the headline where the place is only the check itself, and which of them it is."""


@dataclass(frozen=True, slots=True)
class Folded:
    """A finding and the reports that have it, in their order; it is told in the words of the first.  ``key`` is the same in every run."""

    diagnostic: Diagnostic
    reports: tuple[Report, ...]
    key: Hashable


def identities(report: Report) -> list[Identity]:
    """The identity of every diagnostic of a report, apart from its place.

    A headline may name factors and sizes of its mesh, so two meshes word one defect differently; only at the check, where
    unrelated things are reported, is the wording what tells them apart, and in errors, which may come from anywhere below a line.
    """
    seen: Counter[tuple[str, str, Span | None]] = Counter()
    found = []
    for diagnostic in report.diagnostics:
        at_check = diagnostic.span in (None, report.check.span)
        said = diagnostic.headline if at_check else _error(diagnostic, report)
        found.append((diagnostic.rule, said, seen[diagnostic.rule, said, diagnostic.span]))
        seen[diagnostic.rule, said, diagnostic.span] += 1
    return found


def _error(diagnostic: Diagnostic, report: Report) -> str:
    """What an error says but for its numbers, and where it was raised; nothing of other findings."""
    if diagnostic.rule != "trace-error":
        return ""
    others = (one.span for one in diagnostic.related if one.span != report.check.span)
    raised = [f"{span.file}:{span.line}" for span in others]
    return " ".join((re.sub(r"\d+", "#", diagnostic.headline), *raised))


def folded(reports: Iterable[Report]) -> list[Folded]:
    """The distinct findings of reports, in order of first appearance."""
    merged: dict[Hashable, tuple[Diagnostic, list[Report]]] = {}
    for report in reports:
        for diagnostic, identity in zip(report.diagnostics, identities(report), strict=True):
            place = diagnostic.span or report.check.id
            merged.setdefault((*identity, place), (diagnostic, []))[1].append(report)
    return [Folded(diagnostic, tuple(behind), key) for key, (diagnostic, behind) in merged.items()]


def sharing(finding: Folded, name: Callable[[CheckRef], str] = lambda check: check.id) -> str:
    """Who shares a finding, in one line: ``meshes: tp=2; tp=4``, or the checks with their meshes; empty where only one does."""
    if len(finding.reports) == 1:
        return ""
    meshes: dict[str, list[str]] = {}
    for report in finding.reports:
        meshes.setdefault(name(report.check), []).append(mesh_text(report.mesh))
    if len(meshes) == 1:
        (listed,) = meshes.values()
        return f"meshes: {'; '.join(listed)}"
    return "checks: " + ", ".join(_with_meshes(check, listed) for check, listed in meshes.items())


def _with_meshes(check: str, meshes: Sequence[str]) -> str:
    known = [mesh for mesh in meshes if mesh]
    return f"{check} ({'; '.join(known)})" if known else check


def mesh_text(mesh: dict[str, int]) -> str:
    """A mesh as the command line takes it: ``tp=4,dp=2``."""
    return ",".join(f"{axis}={size}" for axis, size in mesh.items())
