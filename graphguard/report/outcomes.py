"""What a run comes to: the exit code of reports, once comments, baseline and levels have silenced what they do."""

from __future__ import annotations

from collections.abc import Sequence

from graphguard.report.diagnostics import Report, Verdict

REFINES, BROKEN, NOT_RUN, UNKNOWN = 0, 1, 2, 3


def exit_code(reports: Sequence[Report]) -> int:
    """The exit code of a run: what could not run counts before what is broken, and that before what is unknown."""
    outcomes = {outcome(report) for report in reports}
    return next((code for code in (NOT_RUN, BROKEN, UNKNOWN) if code in outcomes), REFINES)


def outcome(report: Report) -> int:
    """What one report means for the exit code; a verdict whose findings are all waived, or lowered below an error, does not fail."""
    if report.verdict is None:
        return NOT_RUN
    if report.verdict is Verdict.REFINES:
        return REFINES
    left = [each for each in report.diagnostics if report.verdict is Verdict.UNKNOWN or each.severity == "error"]
    silenced = report.waived or report.diagnostics
    if silenced and not left:
        return REFINES
    return BROKEN if report.verdict is Verdict.BROKEN else UNKNOWN
