"""``textDocument/didClose``."""

from __future__ import annotations

from typing import Final

from lsprotocol import types

from graphguard_server.serving.server import GraphGuardServer

METHOD: Final = types.TEXT_DOCUMENT_DID_CLOSE


def handle(server: GraphGuardServer, params: types.DidCloseTextDocumentParams) -> None:
    """Go back to the text on disk."""
    document = server.session.documents.close(params.text_document.uri)
    if document is not None:
        server.session.closed(document)
