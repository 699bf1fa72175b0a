"""``textDocument/inlayHint``: the layout of a tensor behind the name it is assigned to; off by default."""

from __future__ import annotations

from typing import Final

from lsprotocol import types

from graphguard_server.features.language.tensors import Assigned, assigned_in, laid_out
from graphguard_server.serving.server import GraphGuardServer
from graphguard_server.state.convert import STALE_NOTE
from graphguard_server.texts.documents import path_of

METHOD: Final = types.TEXT_DOCUMENT_INLAY_HINT
LONGEST: Final = 48
MOST_RANKS: Final = 16


def handle(server: GraphGuardServer, params: types.InlayHintParams) -> list[types.InlayHint]:
    """One hint per assignment whose value has a known relation; while a text is checked anew the last ones keep still, and their data and tooltips say so."""
    path = path_of(params.text_document.uri)
    session = server.session
    if path is None or not session.settings.inlay_hints:
        return []
    ruler = session.documents.ruler(path)
    hints: dict[tuple[int, int], types.InlayHint] = {}
    for assigned in assigned_in(session, path):
        at = (assigned.line, assigned.column)
        if params.range.start.line <= assigned.line <= params.range.end.line and at not in hints:
            hints[at] = _hint(ruler.position(*at), assigned)
    return [hints[key] for key in sorted(hints)]


def _hint(position: types.Position, assigned: Assigned) -> types.InlayHint:
    """The layout where it has a name, else what the last tensor is; the tooltip says what each rank has."""
    places = assigned.places
    texts = {rank: place.text for place in places for rank in place.ranks}
    text = laid_out(places, assigned.run.shown_mesh) or places[-1].layout or places[-1].text
    text = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    rows = [f"rank {rank}: {texts[rank]}" for rank in sorted(texts)]
    shown = rows if len(set(texts.values())) > 1 else [places[-1].text]
    tooltip = "\n".join(
        [
            *shown[:MOST_RANKS],
            *(["…"] if len(shown) > MOST_RANKS else []),
            *([STALE_NOTE] if assigned.run.stale else []),
        ]
    )
    return types.InlayHint(
        position=position,
        label=f": {text}",
        kind=types.InlayHintKind.Type,
        tooltip=tooltip,
        padding_left=False,
        data={"stale": assigned.run.stale},
    )
