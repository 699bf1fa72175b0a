"""Programs that let decide what differs between processes: shown by recording them once more, as processes that differ in nothing.

What refines then, and did not before, fails for that alone.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

from graphguard.checks.requests import CROSS_CHECK_SECONDS, Captured, CheckRequest, Step, as_proved, capture, confirming
from graphguard.ir import Trouble
from graphguard.ir.codec import trouble_from_plain
from graphguard.report.diagnostics import Diagnostic, RelatedPlace, Report
from graphguard.report.registry import severity_of

_FOUND = "found:  recorded as processes that do not differ in it, the implementation refines the specification"
# Asked for in many programs, for names and times that nothing depends on.
_OFTEN_HARMLESS = ("every process has a number", "the clocks", "the system's random")


def told_by_processes(
    request: CheckRequest, captured: Captured, report: Report
) -> Generator[Step, Any, Diagnostic | None]:
    """The finding where programs do not refine, and would if their processes did not differ; else None."""
    asked = [trouble_from_plain(row) for row in captured.summary["unshared"]]
    if not asked or not (yield from _refines_alike(request)):
        return None
    return _diagnostic(sorted(asked, key=lambda one: one.message.startswith(_OFTEN_HARMLESS)), report, request)


def _refines_alike(request: CheckRequest) -> Generator[Step, Any, bool]:
    """Whether nothing is wrong where processes do not differ, for all that a short look tells."""
    captured = yield from capture(replace(request, alike=True), dict(request.overlay))
    if captured.troubles:
        return False
    answer = yield Step("prover", "prove", {"capture": captured.data, "effort": "hasty"})
    if answer["outcome"]["proved"]:
        return True
    numbers = yield confirming(as_proved(captured, answer), CROSS_CHECK_SECONDS)
    return bool(numbers["status"] == "equal")


def _diagnostic(asked: Sequence[Trouble], report: Report, request: CheckRequest) -> Diagnostic:
    first, *others = asked
    headline, _, rest = first.message.partition("\n")
    places = (RelatedPlace(one.span, one.message.partition("\n")[0]) for one in others if one.span is not None)
    return Diagnostic(
        code=first.rule,
        rule=first.rule,
        message="\n".join((headline, _FOUND, rest)),
        severity=severity_of(first.rule, request.levels),
        span=first.span or report.check.span,
        related=tuple(places),
    )
