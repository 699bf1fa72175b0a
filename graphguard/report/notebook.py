"""Reports as notebooks show them: the verdict, findings as on the terminal, and relations folded by module."""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from html import escape
from pathlib import Path

from graphguard.report.diagnostics import Report, Verdict
from graphguard.report.folding import mesh_text
from graphguard.report.layout import Page
from graphguard.report.sources import Sources
from graphguard.report.text import findings, took

_WORDS = {
    Verdict.REFINES: ("refines", "#1a7f37"),
    Verdict.BROKEN: ("broken", "#cf222e"),
    Verdict.UNKNOWN: ("unknown", "#9a6700"),
    None: ("could not run", "#cf222e"),
}
# Colours and fonts are the notebook's own, but for the verdict: it is read on light and on dark pages.
_PRE = "overflow-x:auto;line-height:1.35;font-size:0.92em"


@dataclass(frozen=True, slots=True)
class ShownReport(Report):
    """A report that a notebook shows by itself."""

    @classmethod
    def of(cls, report: Report) -> ShownReport:
        """The same report."""
        return cls(**{field.name: getattr(report, field.name) for field in fields(Report)})

    def _repr_html_(self) -> str:
        """What IPython shows of it."""
        return html(self)


def html(report: Report) -> str:
    """One report as a piece of HTML without scripts."""
    return "".join(_parts(report))


def sources_of(reports: Sequence[Report]) -> Sources:
    """Texts for excerpts: those of files, and those that only Python itself has, such as a notebook's cells."""
    found = [each for report in reports for each in (*report.diagnostics, *report.waived)]
    spans = [each.span for each in found] + [place.span for each in found for place in each.related]
    files = {span.file for span in spans if span is not None}
    unsaved = {file: "".join(linecache.getlines(file)) for file in files if not Path(file).is_file()}
    return Sources(texts={file: text for file, text in unsaved.items() if text})


def _parts(report: Report) -> Iterator[str]:
    word, colour = _WORDS[report.verdict]
    name = escape(report.check.name or report.check.id)
    yield f'<div><b style="color:{colour}">{word}</b> <code>{name}</code>'
    yield f" on {escape(mesh_text(report.mesh)) or 'its own mesh'}, {escape(took(report))}</div>"
    told = findings([report], sources_of([report]), Page(110))
    if told:
        yield f'<pre style="{_PRE}">{escape(told.rstrip())}</pre>'
    notes = (
        ("assumed", report.assumed),
        ("caution", report.cautions),
        ("not compared", report.not_compared),
    )
    rows = [f"<li><b>{kind}</b>: {escape(line)}</li>" for kind, lines in notes for line in lines]
    if rows:
        yield from _folded(f"What it rests on ({len(rows)})", [f"<ul>{''.join(rows)}</ul>"])
    if report.relations:
        yield from _folded(f"Relations of {len(report.relations)} tensors", _modules(report))


def _modules(report: Report) -> Iterator[str]:
    """A table for every module whose tensors are related, in the order of the program."""
    modules: dict[str, list[str]] = {}
    for name, relation in report.relations.items():
        module, _, tensor = name.rpartition(".")
        modules.setdefault(module, []).append(_row(tensor, report.layouts.get(name, ""), str(relation)))
    for module, rows in modules.items():
        table = [f"<table>{''.join(rows)}</table>"]
        yield from _folded(module, table) if module else table


def _row(tensor: str, layout: str, formula: str) -> str:
    """A tensor in words, the formula where the mouse stands still."""
    cells = (f'<td style="text-align:left"><code>{escape(each)}</code></td>' for each in (tensor, layout or formula))
    return f'<tr title="{escape(formula)}">{"".join(cells)}</tr>'


def _folded(title: str, inside: Iterable[str]) -> Iterator[str]:
    yield f'<details style="margin-left:1em"><summary>{escape(title)}</summary>'
    yield from inside
    yield "</details>"
