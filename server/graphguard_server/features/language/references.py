"""``textDocument/references``: every place whose counterpart is the tensor under the cursor."""

from __future__ import annotations

from typing import Final

from lsprotocol import types

from graphguard_server.serving.server import GraphGuardServer
from graphguard_server.state.lookup import at
from graphguard_server.texts.documents import path_of

METHOD: Final = types.TEXT_DOCUMENT_REFERENCES


def handle(server: GraphGuardServer, params: types.ReferenceParams) -> list[types.Location]:
    """Places of both programs that stand for the same tensor."""
    path = path_of(params.text_document.uri)
    if path is None:
        return []
    found: dict[tuple[str, int, int], types.Location] = {}
    for each in at(server.session, path, params.position):
        spans = {place.span for place in each.places} if params.context.include_declaration else set()
        here = {place.span for place in each.places}
        spans |= {place.counterpart for place in each.places if place.counterpart is not None}
        spans |= {place.span for place in each.run.places or () if place.counterpart in here}
        for span in sorted(spans):
            location = server.session.converter.location(each.run, span)
            start = location.range.start
            found.setdefault((location.uri, start.line, start.character), location)
    return list(found.values())
