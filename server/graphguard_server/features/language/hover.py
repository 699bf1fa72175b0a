"""``textDocument/hover``: what the tensor under the cursor is in terms of the other program, per mesh."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from lsprotocol import types

from graphguard.ir.spans import Span
from graphguard_server.features.language.tensors import MOST_OPERANDS, Line, lines_of
from graphguard_server.serving.server import GraphGuardServer
from graphguard_server.state.checks import Check, Run
from graphguard_server.state.convert import run_mesh
from graphguard_server.state.lookup import FoundPlaces, at
from graphguard_server.texts.documents import path_of
from graphguard_server.texts.places import assigned_at, attribute_at, code_at

METHOD: Final = types.TEXT_DOCUMENT_HOVER

_WORDS: Final = {
    "proved": "✓ refines",
    "assumed": "✓ refines, with assumptions",
    "broken": "✗ broken",
    "unknown": "? unknown",
    "error": "could not be checked",
    "idle": "not checked yet",
}
MAX_RUNS: Final = 8
INDENT: Final = "\u2003"  # an em space: Markdown drops ordinary ones at the beginning of a line


@dataclass(frozen=True, slots=True)
class _Style:
    """Emphasis as the client can show it."""

    markdown: bool

    def bold(self, text: str) -> str:
        return f"**{text}**" if self.markdown else text

    def note(self, text: str) -> str:
        return f"*{text}*" if self.markdown else text

    def code(self, text: str) -> str:
        return f"`{text}`" if self.markdown else text

    def lines(self, rows: list[str]) -> str:
        return ("  \n" if self.markdown else "\n").join(rows)


@dataclass(slots=True)
class _Said:
    """The runs of which one and the same is to be said, with their lines."""

    counterpart: str
    runs: list[Run] = field(default_factory=list)
    lines: list[list[Line]] = field(default_factory=list)


def handle(server: GraphGuardServer, params: types.HoverParams) -> types.Hover | None:
    """Answer from the last results; nothing is computed for it."""
    path = path_of(params.text_document.uri)
    if path is None:
        return None
    style = _Style(types.MarkupKind.Markdown in _formats(server))
    parts = list(_of_checks(server, path, params.position, style)) or list(
        _of_tensors(server, path, params.position, style)
    )
    parts = parts or list(_of_parameters(server, path, params.position, style))
    if not parts:
        return None
    kind = types.MarkupKind.Markdown if style.markdown else types.MarkupKind.PlainText
    return types.Hover(types.MarkupContent(kind, "\n\n".join(parts[:MAX_RUNS])))


def _formats(server: GraphGuardServer) -> Sequence[types.MarkupKind]:
    text_document = server.client_capabilities.text_document
    hover = text_document.hover if text_document is not None else None
    return hover.content_format or () if hover is not None else ()


def _of_tensors(server: GraphGuardServer, path: str, position: types.Position, style: _Style) -> Iterator[str]:
    """The user's expression, then what it is, once for all meshes of which the same is to be said."""
    told: dict[Hashable, _Said] = {}
    code = ""
    for found in at(server.session, path, position):
        run, span = found.run, found.places[0].span
        lines = list(lines_of(found.places, run.shown_mesh, partial(_called, run)))
        code = code or _code(run, span)
        state = (run.key.check, run.result, run.stale, run.activity)
        said = tuple((line.whose, line.words, line.made_of) for line in lines)
        there = _counterpart(found, style)
        alike = told.setdefault((state, said, there), _Said(there))
        alike.runs.append(run)
        alike.lines.append(lines)
    if code:
        yield style.code(code)
    for alike in told.values():
        rows = [_title(alike.runs, style)]
        for same in zip(*alike.lines, strict=True):
            rows += _line(same, style)
        yield style.lines([*rows, *filter(None, [alike.counterpart])])


def _counterpart(found: FoundPlaces, style: _Style) -> str:
    """Where the other program computes the same, and by which expression."""
    place = next((place for place in found.places if place.counterpart is not None), None)
    if place is None or place.counterpart is None:
        return ""
    there = place.counterpart
    whose = "ranks" if place.side == "specification" else "specification"
    code = _code(found.run, there)
    where = f"{os.path.basename(there.file)}:{there.line}"
    return f"{whose}: {style.code(code)} ({where})" if code else f"{whose}: {style.code(where)}"


def _code(run: Run, span: Span) -> str:
    return code_at(run.snapshot.get(span.file), span)


def _called(run: Run, span: Span) -> str:
    """The name that an expression is assigned to, else the expression."""
    text = run.snapshot.get(span.file)
    return "" if text is None else assigned_at(text, span) or code_at(text, span)


def _of_parameters(server: GraphGuardServer, path: str, position: types.Position, style: _Style) -> Iterator[str]:
    """On an attribute such as `self.up.weight`: the relations of the tensors whose names end with it."""
    session = server.session
    line, column = session.documents.ruler(path).place(position)
    name = attribute_at(session.documents.text(path) or "", (line, column))
    for run in session.runs_in(path) if name else ():
        rows = [
            f"specification {style.code(full)}: {style.code(run.layouts.get(full, relation))}"
            for full, relation in run.relations.items()
            if full == name or full.endswith(f".{name}") or f".{name}." in f".{full}"
        ]
        if rows:
            yield style.lines([_title([run], style), *rows[:MAX_RUNS]])


def _of_checks(server: GraphGuardServer, path: str, position: types.Position, style: _Style) -> Iterator[str]:
    """On the name of a check: the verdict of each mesh."""
    for project in server.session.projects.values():
        for check in project.checks.values():
            if check.file == path and _on(server, check, position):
                for run in check.runs.values():
                    yield style.lines([_title([run], style), *_findings(run, style)])


def _on(server: GraphGuardServer, check: Check, position: types.Position) -> bool:
    place = server.session.documents.ruler(check.file).range(check.ref.span)
    here = (position.line, position.character)
    return (place.start.line, place.start.character) <= here <= (place.end.line, place.end.character)


def _title(runs: Sequence[Run], style: _Style) -> str:
    """The check, the meshes of which the same is said, and how they ended."""
    run = runs[0]
    meshes = ", ".join(map(run_mesh, runs))
    words = [style.bold(f"{run.key.check.partition('::')[2]} · {meshes}: {_WORDS[run.result]}")]
    if run.known and len(runs) == 1:
        words.append(f"{run.seconds:.2f} s" + (" (cached)" if run.report is not None and run.report.cached else ""))
    if run.stale:
        words.append(style.note("stale: from before the last edit"))
    if run.activity != "idle":
        words.append(style.note(run.activity))
    return " · ".join(words)


def _line(same: Sequence[Line], style: _Style) -> Iterator[str]:
    """What one tensor is, its shape on every mesh of which this is said, and what it was made of."""
    line = same[0]
    shapes = ", ".join(dict.fromkeys(each.shape for each in same))
    yield f"{line.whose} [{shapes}]: ".lstrip() + style.code(line.words)
    if line.made_of:
        others = list(dict.fromkeys(line.made_of))
        shown = ", ".join(style.code(each) for each in others[:MOST_OPERANDS])
        yield f"{INDENT}from {shown}" + (", …" if len(others) > MOST_OPERANDS else "")


def _findings(run: Run, style: _Style) -> Iterator[str]:
    """What a check claims, and what its verdict says beyond its word: the findings, what it rests on, what to be wary of."""
    if run.failure:
        yield run.failure.partition("\n")[0]
    if run.report is None:
        return
    yield from run.claimed
    evaluated, calls = run.report.operators.get("evaluated", 0), _calls(run)
    if evaluated < calls:
        yield f"proved anew: {evaluated} of {calls} operators"
    yield from (diagnostic.headline for diagnostic in run.report.diagnostics[:MAX_RUNS])
    if run.report.counterexample is not None:
        yield f"counterexample: {style.code(str(run.report.counterexample))}"
    yield from (f"assumed: {each}" for each in run.report.particular_assumptions[:MAX_RUNS])
    yield from (f"caution: {each}" for each in run.report.cautions[:MAX_RUNS])
    yield from (f"not compared: {each}" for each in run.report.not_compared[:MAX_RUNS])


def _calls(run: Run) -> int:
    """Operators of both programs."""
    operators = run.report.operators if run.report is not None else {}
    return sum(operators.get(name, 0) for name in ("spec", "impl"))
