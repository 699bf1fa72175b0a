"""``workspace/didChangeWorkspaceFolders``."""

from __future__ import annotations

from typing import Final

from lsprotocol import types

from graphguard_server.serving.server import GraphGuardServer
from graphguard_server.texts.documents import path_of

METHOD: Final = types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS


def handle(server: GraphGuardServer, params: types.DidChangeWorkspaceFoldersParams) -> None:
    """Follow added and removed folders."""
    removed = {path_of(folder.uri) for folder in params.event.removed}
    added = [path for folder in params.event.added if (path := path_of(folder.uri)) is not None]
    session = server.session
    session.folders = [folder for folder in session.folders if folder not in removed] + added
    for folder in added:
        server.watcher.watch(folder)
    session.reconfigure()
    server.changed(())
