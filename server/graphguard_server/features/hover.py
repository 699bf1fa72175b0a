"""``textDocument/hover``: what the tensor under the cursor is in terms of the other program, per mesh."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lsprotocol import types

from graphguard_server.checks import Check, Run
from graphguard_server.convert import run_mesh
from graphguard_server.documents import path_of
from graphguard_server.lookup import at
from graphguard_server.places import Place, attribute_at

if TYPE_CHECKING:
    from graphguard_server.server import GraphGuardServer

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
        rows = [_title(found.run, style), *(_line(place, style) for place in found.places)]
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
                yield style.lines([style.bold(check.ref.name), *(_title(run, style) for run in check.runs.values())])


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


def _ranks(ranks: tuple[int, ...]) -> str:
    if not ranks:
        return "every rank"
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))
