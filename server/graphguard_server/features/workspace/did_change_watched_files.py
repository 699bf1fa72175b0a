"""``workspace/didChangeWatchedFiles``."""

from __future__ import annotations

from typing import Final

from lsprotocol import types

from graphguard_server.serving.server import GraphGuardServer
from graphguard_server.texts.documents import path_of

METHOD: Final = types.WORKSPACE_DID_CHANGE_WATCHED_FILES


def handle(server: GraphGuardServer, params: types.DidChangeWatchedFilesParams) -> None:
    """Pass changes on to the watcher, which merges them with what it saw itself."""
    for change in params.changes:
        path = path_of(change.uri)
        if path is not None:
            server.watcher.note(path)
