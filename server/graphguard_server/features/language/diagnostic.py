"""``textDocument/diagnostic``: the last findings of a file, for clients that ask instead of being told (``"diagnostics": "pull"``)."""

from __future__ import annotations

from typing import Final

from lsprotocol import types

from graphguard_server.serving.server import GraphGuardServer
from graphguard_server.texts.documents import digest, path_of

METHOD: Final = types.TEXT_DOCUMENT_DIAGNOSTIC
OPTIONS: Final = types.DiagnosticOptions(
    inter_file_dependencies=True, workspace_diagnostics=False, identifier="graphguard"
)


def handle(
    server: GraphGuardServer, params: types.DocumentDiagnosticParams
) -> types.RelatedFullDocumentDiagnosticReport | types.RelatedUnchangedDocumentDiagnosticReport:
    """Answer from the last results; what comes later is announced by ``workspace/diagnostic/refresh``."""
    path = path_of(params.text_document.uri)
    found = server.teller.diagnostics(path) if path is not None else []
    name = digest(repr(found))
    if name == params.previous_result_id:
        return types.RelatedUnchangedDocumentDiagnosticReport(result_id=name)
    return types.RelatedFullDocumentDiagnosticReport(items=found, result_id=name)
