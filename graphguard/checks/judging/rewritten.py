"""Troubles that the worker knows a way out of: each is traced and proved before it is offered."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

from graphguard.checks.judging.requests import Captured, CheckRequest, Step, capture
from graphguard.ir import Trouble
from graphguard.ir.plain import to_plain
from graphguard.report.diagnostics import Diagnostic, Fix, RelatedPlace, Report, TextEdit
from graphguard.report.registry import reported


def mended(request: CheckRequest, report: Report, troubles: tuple[Trouble, ...]) -> Generator[Step, Any, Report]:
    """The report of troubles with the first of their mendings after which the check is proved; what was not tried, or not proved, is told as a hint."""
    fix = (yield from _proved(request, troubles)) if request.fixes else None
    diagnostics = list(report.diagnostics)
    for at, trouble in enumerate(troubles):
        if trouble.mendings:
            title = trouble.mendings[0].title if fix is None else f"{fix.title} (proved)"
            fixes = () if fix is None else (fix,)
            diagnostics[at] = replace(diagnostics[at], message=f"{diagnostics[at].message}\nfix: {title}", fixes=fixes)
    return replace(report, diagnostics=tuple(diagnostics))


def doubted(request: CheckRequest, captured: Captured, report: Report) -> Generator[Step, Any, Report | None]:
    """The report of a broken check whose doubts are why: without them it is proved, or it breaks at the very place."""
    fix = (yield from _proved(request, captured.doubts)) if request.fixes else None
    first = next((each for each in captured.doubts if _is_at(each, report)), captured.doubts[0])
    if fix is None and not _is_at(first, report):
        return None
    told = diagnostic_of(first, report, request)
    if fix is not None:
        told = replace(told, message=f"{told.message}\nfix: {fix.title} (proved)", fixes=(fix,))
    return replace(report, diagnostics=(told,))


def diagnostic_of(trouble: Trouble, report: Report, request: CheckRequest) -> Diagnostic:
    """A trouble as it is shown."""
    span = trouble.span or report.check.span
    return reported(trouble.rule, trouble.message, request.levels, span, places_of(trouble))


def places_of(trouble: Trouble) -> list[RelatedPlace]:
    """The further places of a trouble."""
    return [RelatedPlace(span, text) for span, text in trouble.related]


def _is_at(trouble: Trouble, report: Report) -> bool:
    places = {trouble.span, *(span for span, _ in trouble.related)}
    return any(each.span in places for each in report.diagnostics)


def _proved(request: CheckRequest, troubles: tuple[Trouble, ...]) -> Generator[Step, Any, Fix | None]:
    """The first of the troubles' mendings, those of all at once, that is proved."""
    mendings = [each.mendings for each in troubles if each.mendings]
    for way in range(max(map(len, mendings), default=0)):
        chosen = [each[min(way, len(each) - 1)] for each in mendings]
        edits = tuple(dict.fromkeys(TextEdit(span, text) for one in chosen for span, text in one.edits))
        texts = yield Step("prover", "texts", {"edits": to_plain(edits), "sources": dict(request.overlay)})
        if texts is None:
            continue
        captured = yield from capture(request, {**request.overlay, **texts})
        if captured.troubles:
            continue
        answer = yield Step("prover", "prove", {"capture": captured.data})
        if answer["outcome"]["proved"]:
            title = "; ".join(dict.fromkeys(one.title for one in chosen))
            return Fix(title, edits, proved=True, place=troubles[0].span)
    return None
