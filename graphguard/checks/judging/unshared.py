"""Programs that let decide what differs between processes: shown by recording them once more, as processes that differ in nothing.

What refines then, and did not before, fails for that alone.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from graphguard.checks.judging.requests import (
    CROSS_CHECK,
    Captured,
    CheckRequest,
    Judge,
    Step,
    Steps,
    as_proved,
    capture,
    confirming,
    same_programs,
)
from graphguard.ir import Span, Trouble
from graphguard.report.diagnostics import Diagnostic, Fix, RelatedPlace, Report, TextEdit, Verdict
from graphguard.report.edits import changed_files
from graphguard.report.registry import reported
from graphguard.report.sources import Sources

_FOUND = "found:  recorded as processes that do not differ in it, the implementation refines the specification"
# Asked for in many programs, for names and times that nothing depends on.
_OFTEN_HARMLESS = ("the 'id' of", "every process has a number", "the clocks", "the system's random")


def told_by_processes(
    request: CheckRequest, captured: Captured, report: Report
) -> Generator[Step, Any, Diagnostic | None]:
    """The finding where programs do not refine, and would if their processes did not differ; else None."""
    if not captured.unshared or not (yield from _refines_alike(request)):
        return None
    asked = sorted(captured.unshared, key=lambda one: one.message.startswith(_OFTEN_HARMLESS))
    found = _diagnostic(asked, report, request)
    fix = _sorting(asked) if request.fixes else None
    if fix is None or not (yield from _is_proved(fix, request)):
        return found
    message, _, _ = found.message.partition("\nfix: ")
    return replace(found, message=f"{message}\nfix: {fix.title} (proved)", fixes=(fix,))


def turned(request: CheckRequest, captured: Captured, report: Report, judge: Judge) -> Steps:
    """The report of a check that refines, after it was recorded with other answers to the specification's process.

    A coin has two sides, so that the specification's falls as that of half of the ranks: where one of these alone decides (it broadcasts), nothing differs by chance.
    """
    few = any(not one.message.startswith(_OFTEN_HARMLESS) for one in captured.unshared)
    if not few or request.processes != "apart":
        return report
    asked = replace(request, mesh=captured.mesh, processes="turned")
    other = yield from capture(asked, dict(request.overlay))
    if not other.troubles and same_programs(other, captured):
        return report
    judged = yield from judge(asked, other, replace(report, verdict=None))
    return report if judged.verdict is Verdict.REFINES else judged


def _sorting(asked: Sequence[Trouble]) -> Fix | None:
    """The edit that sorts what has an order of its own in every process."""
    headline = asked[0].message.partition("\n")[0]
    if not headline.startswith("the order"):
        return None
    places = [one.span for one in asked if one.span is not None and one.message.startswith(headline)]
    starts = [Span(place.file, place.line, place.column) for place in places]
    ends = [Span(place.file, place.end_line, place.end_column) for place in places]
    edits = [edit for a, b in zip(starts, ends, strict=True) for edit in (TextEdit(a, "sorted("), TextEdit(b, ")"))]
    return Fix("sorted(...)", tuple(edits), proved=True, place=places[0]) if places else None


def _is_proved(fix: Fix, request: CheckRequest) -> Generator[Step, Any, bool]:
    """Whether the implementation refines the specification after an edit, as processes that differ."""
    texts = {
        file: after
        for file, (_, after) in changed_files(fix, Sources(Path(request.root), dict(request.overlay))).items()
    }
    captured = yield from capture(replace(request, cache=False), {**request.overlay, **texts})
    if captured.troubles:
        return False
    answer = yield Step("prover", "prove", {"capture": captured.data, "effort": "hasty"})
    return bool(answer["outcome"]["proved"])


def with_asked(told: Diagnostic, captured: Captured) -> Diagnostic:
    """A finding, with what differs between processes as far as its own lines ask for it."""
    span = told.span
    places = tuple(
        RelatedPlace(one.span, one.message.partition("\n")[0])
        for one in captured.unshared
        if one.span is not None and span is not None and one.span.file == span.file
        if span.line <= one.span.line <= max(span.line, span.end_line)
    )
    return replace(told, related=(*told.related, *places))


def _refines_alike(request: CheckRequest) -> Generator[Step, Any, bool]:
    """Whether nothing is wrong where processes do not differ, for all that a short look tells."""
    captured = yield from capture(replace(request, processes="alike"), dict(request.overlay))
    if captured.troubles:
        return False
    answer = yield Step("prover", "prove", {"capture": captured.data, "effort": "hasty"})
    if answer["outcome"]["proved"]:
        return True
    numbers = yield confirming(as_proved(captured, answer), CROSS_CHECK)
    return bool(numbers["status"] == "equal")


def _diagnostic(asked: Sequence[Trouble], report: Report, request: CheckRequest) -> Diagnostic:
    first, *others = asked
    headline, _, rest = first.message.partition("\n")
    places = (RelatedPlace(one.span, one.message.partition("\n")[0]) for one in others if one.span is not None)
    message = "\n".join((headline, _FOUND, rest))
    return reported(first.rule, message, request.levels, first.span or report.check.span, places)
