"""``textDocument/hover``: what the tensor under the cursor is in terms of the other program, per mesh."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from lsprotocol import types

from graphguard_server.serving.server import GraphGuardServer
from graphguard_server.state.checks import Check, Run
from graphguard_server.state.convert import run_mesh
from graphguard_server.state.lookup import at
from graphguard_server.texts.documents import path_of
from graphguard_server.texts.places import Place, attribute_at

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
MOST_OPERANDS: Final = 4
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
    for found in at(server.session, path, position):
        rows = [_title(found.run, style)]
        for place in found.places:
            rows += [_line(place, style), *_derivation(place, style)]
        counterpart = next((place.counterpart for place in found.places if place.counterpart is not None), None)
        if counterpart is not None:
            rows.append(f"counterpart: {style.code(f'{os.path.basename(counterpart.file)}:{counterpart.line}')}")
        yield style.lines(rows)


def _of_parameters(server: GraphGuardServer, path: str, position: types.Position, style: _Style) -> Iterator[str]:
    """On an attribute such as `self.up.weight`: the relations of the tensors whose names end with it."""
    session = server.session
    line, column = session.documents.ruler(path).place(position)
    name = attribute_at(session.documents.text(path) or "", (line, column))
    for run in session.runs_in(path) if name else ():
        rows = [
            f"specification {style.code(full)}: {style.code(relation)}"
            for full, relation in run.relations.items()
            if full == name or full.endswith(f".{name}") or f".{name}." in f".{full}"
        ]
        if rows:
            yield style.lines([_title(run, style), *rows[:MAX_RUNS]])


def _of_checks(server: GraphGuardServer, path: str, position: types.Position, style: _Style) -> Iterator[str]:
    """On the name of a check: the verdict of each mesh."""
    for project in server.session.projects.values():
        for check in project.checks.values():
            if check.file == path and _on(server, check, position):
                for run in check.runs.values():
                    yield style.lines([_title(run, style), *_findings(run, style)])


def _on(server: GraphGuardServer, check: Check, position: types.Position) -> bool:
    place = server.session.documents.ruler(check.file).range(check.ref.span)
    here = (position.line, position.character)
    return (place.start.line, place.start.character) <= here <= (place.end.line, place.end.character)


def _title(run: Run, style: _Style) -> str:
    words = [style.bold(f"{run.key.check.partition('::')[2]} · {run_mesh(run)}: {_WORDS[run.result]}")]
    if run.known:
        words.append(f"{run.seconds:.2f} s" + (" (cached)" if run.report is not None and run.report.cached else ""))
    if run.stale:
        words.append(style.note("stale: from before the last edit"))
    if run.activity != "idle":
        words.append(style.note(run.activity))
    return " · ".join(words)


def _line(place: Place, style: _Style) -> str:
    whose = "specification" if place.side == "specification" else _ranks(place.ranks)
    phase = " (gradient)" if place.phase == "backward" else ""
    shape = "×".join(map(str, place.shape)) or "scalar"
    return f"{whose}{phase} {style.code(place.operator)} [{shape}]: {style.code(place.text)}"


def _derivation(place: Place, style: _Style) -> Iterator[str]:
    """What it was made of, in the same terms."""
    others = [each for each in dict.fromkeys(place.operands) if each != place.text]
    if others:
        shown = ", ".join(style.code(each) for each in others[:MOST_OPERANDS])
        yield f"{INDENT}from {shown}" + (", …" if len(others) > MOST_OPERANDS else "")


def _findings(run: Run, style: _Style) -> Iterator[str]:
    """What a check's verdict says beyond its word: the findings, what it rests on, what to be wary of."""
    if run.failure:
        yield run.failure.partition("\n")[0]
    if run.report is None:
        return
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


def _ranks(ranks: tuple[int, ...]) -> str:
    if not ranks:
        return "every rank"
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))
