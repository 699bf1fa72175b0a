"""Findings of one defect in several places, told as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphguard.refine.finding import Finding
from graphguard.report.diagnostics import Diagnostic, Fix, RelatedPlace

_FIX = "\nfix: "


def together(told: Sequence[tuple[Finding, Diagnostic]]) -> tuple[Diagnostic, ...]:
    """The diagnostics, those of findings that are alike as one, with all their edits: each was proved on top of those before it."""
    groups: dict[str, list[Diagnostic]] = {}
    for index, (finding, diagnostic) in enumerate(told):
        groups.setdefault(finding.alike or str(index), []).append(diagnostic)
    return tuple(each for group in groups.values() for each in _joined(group))


def _joined(group: list[Diagnostic]) -> list[Diagnostic]:
    first, *others = group
    if not others or any(bool(each.fixes) != bool(first.fixes) for each in others):
        return group  # what mends only some of them is no fix of all
    message, _, _ = first.message.partition(_FIX)
    lines = [message, *(f"and: {each.headline}" for each in others)]
    fixes: tuple[Fix, ...] = ()
    if first.fixes:
        best = [each.fixes[0] for each in group]
        titles = "; ".join(dict.fromkeys(fix.title for fix in best))
        lines.append(f"fix: {titles} (proved)")
        edits = tuple(dict.fromkeys(edit for fix in best for edit in fix.edits))
        fixes = (
            Fix(titles, edits, proved=True, bytes_moved=sum(fix.bytes_moved for fix in best), place=best[0].place),
        )
    places = [RelatedPlace(each.span, "here as well") for each in others if each.span not in (None, first.span)]
    related = dict.fromkeys((*places, *(place for each in group for place in each.related)))
    return [replace(first, message="\n".join(lines), related=tuple(related), fixes=fixes)]
