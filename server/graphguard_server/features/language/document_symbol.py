"""``textDocument/documentSymbol``: the checks of a file."""

from __future__ import annotations

from typing import Final

from lsprotocol import types

from graphguard_server.serving.server import GraphGuardServer
from graphguard_server.state.checks import Check
from graphguard_server.texts.documents import path_of

METHOD: Final = types.TEXT_DOCUMENT_DOCUMENT_SYMBOL


def handle(
    server: GraphGuardServer, params: types.DocumentSymbolParams
) -> list[types.DocumentSymbol] | list[types.SymbolInformation]:
    """Hierarchical symbols where the client knows them, else the flat form."""
    path = path_of(params.text_document.uri)
    checks = [
        check for project in server.session.projects.values() for check in project.checks.values() if check.file == path
    ]
    if server.supports("text_document.document_symbol.hierarchical_document_symbol_support"):
        return [_symbol(server, check) for check in checks]
    return [information(server, check) for check in checks]


def information(server: GraphGuardServer, check: Check) -> types.SymbolInformation:
    """A check as a symbol with its location."""
    documents = server.session.documents
    location = types.Location(documents.uri(check.file), documents.ruler(check.file).range(check.ref.span))
    return types.SymbolInformation(location=location, name=check.ref.name, kind=types.SymbolKind.Function)


def _symbol(server: GraphGuardServer, check: Check) -> types.DocumentSymbol:
    place = server.session.documents.ruler(check.file).range(check.ref.span)
    states = ", ".join(f"{label or 'its own mesh'} {run.state}" for label, run in check.runs.items())
    return types.DocumentSymbol(
        name=check.ref.name,
        kind=types.SymbolKind.Function,
        range=place,
        selection_range=place,
        detail=f"check: {states}",
    )
