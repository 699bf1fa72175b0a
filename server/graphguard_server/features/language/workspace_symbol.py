"""``workspace/symbol``: all checks, by name."""

from __future__ import annotations

from typing import Final

from lsprotocol import types

from graphguard_server.features.language.document_symbol import information
from graphguard_server.serving.server import GraphGuardServer

METHOD: Final = types.WORKSPACE_SYMBOL


def handle(server: GraphGuardServer, params: types.WorkspaceSymbolParams) -> list[types.SymbolInformation]:
    """Checks whose name holds the letters of the query in order."""
    return [
        information(server, check)
        for project in server.session.projects.values()
        for check in project.checks.values()
        if _matches(params.query.lower(), check.ref.id.lower())
    ]


def _matches(query: str, name: str) -> bool:
    rest = iter(name)
    return all(letter in rest for letter in query)
