"""``textDocument/typeDefinition``: the specification's line, for clients whose definition belongs to another server."""

from __future__ import annotations

from typing import Final

from lsprotocol import types

from graphguard_server.features.language.definition import counterparts
from graphguard_server.serving.server import GraphGuardServer

METHOD: Final = types.TEXT_DOCUMENT_TYPE_DEFINITION


def handle(server: GraphGuardServer, params: types.TypeDefinitionParams) -> list[types.Location]:
    """Where the other program computes the tensor under the cursor."""
    return counterparts(server, params.text_document.uri, params.position)
