"""One line for every finding: ``file:line:col: rule message``."""

from __future__ import annotations

from collections.abc import Sequence

from graphguard.report.diagnostics import Diagnostic, Report
from graphguard.report.sources import Sources


def render(reports: Sequence[Report], sources: Sources) -> str:
    """Every diagnostic in one line; a finding that several meshes or checks share is printed once."""
    lines = dict.fromkeys(_line(report, diagnostic, sources) for report in reports for diagnostic in report.diagnostics)
    return "".join(f"{line}\n" for line in lines)


def _line(report: Report, diagnostic: Diagnostic, sources: Sources) -> str:
    span = diagnostic.span
    place = report.check.id if span is None else f"{sources.shown(span.file)}:{span.line}:{span.column}"
    return f"{place}: {diagnostic.rule} {diagnostic.headline}"
