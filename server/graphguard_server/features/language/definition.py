"""``textDocument/definition``: from a distributed line to the specification's, and back."""

from __future__ import annotations

from typing import Final

from lsprotocol import types

from graphguard_server.serving.server import GraphGuardServer
from graphguard_server.state.lookup import at
from graphguard_server.texts.documents import path_of

METHOD: Final = types.TEXT_DOCUMENT_DEFINITION


def handle(server: GraphGuardServer, params: types.DefinitionParams) -> list[types.Location]:
    """Where the other program computes the tensor under the cursor."""
    return counterparts(server, params.text_document.uri, params.position)


def counterparts(server: GraphGuardServer, uri: str, position: types.Position) -> list[types.Location]:
    """The counterparts of a position in every run, each place once."""
    path = path_of(uri)
    if path is None:
        return []
    found: dict[tuple[str, int, int], types.Location] = {}
    for each in at(server.session, path, position):
        for place in each.places:
            if place.counterpart is not None:
                location = server.session.converter.location(each.run, place.counterpart)
                start = location.range.start
                found.setdefault((location.uri, start.line, start.character), location)
    return list(found.values())
