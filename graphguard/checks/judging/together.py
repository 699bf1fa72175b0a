"""Findings of one defect in several places, told as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphguard.ir import Span
from graphguard.refine.finding import Finding
from graphguard.report.diagnostics import Diagnostic, Fix, RelatedPlace

_FIX = "\nfix: "


def together(told: Sequence[tuple[Finding, Diagnostic]]) -> tuple[Diagnostic, ...]:
    """The diagnostics, those of findings that are alike as one, with all their edits: each was proved on top of those before it; what is said twice and mended neither time, once."""
    groups: dict[str, list[Diagnostic]] = {}
    open_before: set[tuple[str, str, Span | None]] = set()
    for index, (finding, diagnostic) in enumerate(told):
        said = diagnostic.rule, diagnostic.headline, diagnostic.span
        if diagnostic.fixes or said not in open_before:
            groups.setdefault(finding.alike or str(index), []).append(diagnostic)
        if not diagnostic.fixes:
            open_before.add(said)
    return tuple(each for group in groups.values() for each in _joined(group))


def _joined(group: list[Diagnostic]) -> list[Diagnostic]:
    first, *others = group
    if not others or any(bool(each.fixes) != bool(first.fixes) for each in others):
        return group  # what mends only some of them is no fix of all
    message, _, _ = first.message.partition(_FIX)
    lines = [message, *dict.fromkeys(f"and: {each.headline}" for each in others if each.headline != first.headline)]
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
    kept = tuple(place for place in related if not any(_says_more(other, place) for other in related))
    return [replace(first, message="\n".join(lines), related=kept, fixes=fixes)]


def _says_more(other: RelatedPlace, place: RelatedPlace) -> bool:
    """Whether another place of a diagnostic says what one does, and more: ``the check that fails: out`` beside ``the check that fails``."""
    return other.span == place.span and other.message.startswith(f"{place.message}: ")
