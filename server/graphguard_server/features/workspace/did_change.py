"""``textDocument/didChange``."""

from __future__ import annotations

from typing import Final

from lsprotocol import types

from graphguard_server.serving.server import GraphGuardServer

METHOD: Final = types.TEXT_DOCUMENT_DID_CHANGE


def handle(server: GraphGuardServer, params: types.DidChangeTextDocumentParams) -> None:
    """Apply the edits; results they concern are stale from this moment."""
    document = server.session.documents.change(params)
    if document is not None and document.path is not None and document.language == "python":
        server.session.edited(document.path)
