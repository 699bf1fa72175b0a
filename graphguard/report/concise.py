"""One line for every finding: ``file:line:col: rule message``."""

from __future__ import annotations

from collections.abc import Sequence

from graphguard.report.diagnostics import Report
from graphguard.report.folding import Folded, folded
from graphguard.report.sources import Sources


def render(reports: Sequence[Report], sources: Sources) -> str:
    """Every finding in one line; one that several meshes or checks share is printed once."""
    return "".join(f"{_line(finding, sources)}\n" for finding in folded(reports))


def _line(finding: Folded, sources: Sources) -> str:
    diagnostic, report = finding.diagnostic, finding.reports[0]
    span = diagnostic.span
    place = (
        sources.shown_check(report.check) if span is None else f"{sources.shown(span.file)}:{span.line}:{span.column}"
    )
    return f"{place}: {diagnostic.rule} {diagnostic.headline}"
