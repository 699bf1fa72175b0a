"""``textDocument/inlayHint``: the layout of a tensor behind the name it is assigned to; off by default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lsprotocol import types

from graphguard_server.documents import path_of
from graphguard_server.places import Place, bounds_of_assigned

if TYPE_CHECKING:
    from graphguard_server.server import GraphGuardServer

METHOD: Final = types.TEXT_DOCUMENT_INLAY_HINT
LONGEST: Final = 48


def handle(server: GraphGuardServer, params: types.InlayHintParams) -> list[types.InlayHint]:
    """One hint per assignment whose value has a known relation; none from stale results."""
    path = path_of(params.text_document.uri)
    session = server.session
    if path is None or not session.settings.inlay_hints:
        return []
    ruler = session.documents.ruler(path)
    hints: dict[tuple[int, int], types.InlayHint] = {}
    for run in session.runs_in(path):
        if run.stale or run.places is None:
            continue
        move = session.converter.move(run, path)
        for end, place in _assigned(run.snapshot[path], path, run.places):
            line, column = move(*end)
            if params.range.start.line <= line <= params.range.end.line:
                hints.setdefault((line, column), _hint(ruler.position(line, column), place))
    return [hints[key] for key in sorted(hints)]


def _assigned(text: str, path: str, places: tuple[Place, ...]) -> list[tuple[tuple[int, int], Place]]:
    names = bounds_of_assigned(text)
    found: dict[tuple[int, int], Place] = {}
    for place in places:
        span = place.span
        bounds = ((span.line - 1, span.column - 1), (span.end_line - 1, span.end_column - 1))
        if span.file == path and place.phase == "forward" and bounds in names:
            found[names[bounds][1]] = place
    return sorted(found.items(), key=lambda each: each[0])


def _hint(position: types.Position, place: Place) -> types.InlayHint:
    text = place.text if len(place.text) <= LONGEST else place.text[: LONGEST - 1] + "…"
    return types.InlayHint(
        position=position, label=f": {text}", kind=types.InlayHintKind.Type, tooltip=place.text, padding_left=False
    )
