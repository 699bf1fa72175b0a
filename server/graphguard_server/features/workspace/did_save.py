"""``textDocument/didSave``."""

from __future__ import annotations

from typing import Final

from lsprotocol import types

from graphguard_server.serving.server import GraphGuardServer

METHOD: Final = types.TEXT_DOCUMENT_DID_SAVE
OPTIONS: Final = types.SaveOptions(include_text=False)


def handle(server: GraphGuardServer, params: types.DidSaveTextDocumentParams) -> None:
    """Run what waited for the save."""
    document = server.session.documents.get(params.text_document.uri)
    if document is not None and document.path is not None and document.language == "python":
        server.session.saved(document.path)
