"""``textDocument/didOpen``."""

from __future__ import annotations

from typing import Final

from lsprotocol import types

from graphguard_server.serving.server import GraphGuardServer

METHOD: Final = types.TEXT_DOCUMENT_DID_OPEN


def handle(server: GraphGuardServer, params: types.DidOpenTextDocumentParams) -> None:
    """Take over the text and run the checks it concerns."""
    session = server.session
    session.opened(session.documents.open(params.text_document))
