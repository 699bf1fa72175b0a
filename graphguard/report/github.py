"""Findings as GitHub workflow commands, which annotate the lines of a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from graphguard.report.diagnostics import Report
from graphguard.report.folding import Folded, folded, sharing
from graphguard.report.sources import Sources

_COMMANDS = {"error": "error", "warning": "warning", "information": "notice", "hint": "notice"}


def render(reports: Sequence[Report], sources: Sources) -> str:
    """One command for every distinct finding."""
    return "".join(f"{_command(finding, sources)}\n" for finding in folded(reports))


def _command(finding: Folded, sources: Sources) -> str:
    diagnostic, report = finding.diagnostic, finding.reports[0]
    span = diagnostic.span or report.check.span
    message = "\n".join(line for line in (diagnostic.message, sharing(finding)) if line)
    properties = {
        "title": f"graphguard ({diagnostic.rule})",
        "file": sources.shown(span.file),
        "line": str(span.line),
        "endLine": str(span.end_line or span.line),
    }
    if span.end_line in (0, span.line):  # GitHub takes columns only within one line
        properties |= {"col": str(span.column), "endColumn": str(span.end_column or span.column)}
    listed = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{_COMMANDS[diagnostic.severity]} {listed}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
