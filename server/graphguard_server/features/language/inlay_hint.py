"""``textDocument/inlayHint``: the layout of a tensor behind the name it is assigned to; off by default."""

from __future__ import annotations

from typing import Final

from lsprotocol import types

from graphguard_server.features.language.tensors import laid_out
from graphguard_server.serving.server import GraphGuardServer
from graphguard_server.texts.documents import path_of
from graphguard_server.texts.places import Place, bounds_of_assigned

METHOD: Final = types.TEXT_DOCUMENT_INLAY_HINT
LONGEST: Final = 48
MOST_RANKS: Final = 16


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
        for end, places in _assigned(run.snapshot[path], path, run.places).items():
            line, column = move(*end)
            if params.range.start.line <= line <= params.range.end.line:
                hints.setdefault((line, column), _hint(ruler.position(line, column), places, run.shown_mesh))
    return [hints[key] for key in sorted(hints)]


def _assigned(text: str, path: str, places: tuple[Place, ...]) -> dict[tuple[int, int], list[Place]]:
    """The places of every assigned value, by where its name ends."""
    names = bounds_of_assigned(text)
    found: dict[tuple[int, int], list[Place]] = {}
    for place in places:
        span = place.span
        bounds = ((span.line - 1, span.column - 1), (span.end_line - 1, span.end_column - 1))
        if span.file == path and place.phase == "forward" and bounds in names:
            found.setdefault(names[bounds][1], []).append(place)
    return found


def _hint(position: types.Position, places: list[Place], mesh: dict[str, int]) -> types.InlayHint:
    """The layout where it has a name, else what the last tensor is; the tooltip says what each rank has."""
    texts = {rank: place.text for place in places for rank in place.ranks}
    text = laid_out(places, mesh) or places[-1].layout or places[-1].text
    text = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    rows = [f"rank {rank}: {texts[rank]}" for rank in sorted(texts)]
    shown = rows if len(set(texts.values())) > 1 else [places[-1].text]
    tooltip = "\n".join(shown[:MOST_RANKS] + (["…"] if len(shown) > MOST_RANKS else []))
    return types.InlayHint(
        position=position, label=f": {text}", kind=types.InlayHintKind.Type, tooltip=tooltip, padding_left=False
    )
