"""``initialized``: ask for settings, watch files, and say how things stand."""

from __future__ import annotations

import asyncio
from typing import Final

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from graphguard_server.features.workspace import did_change_configuration
from graphguard_server.serving.server import GraphGuardServer

METHOD: Final = types.INITIALIZED


async def handle(server: GraphGuardServer, _params: types.InitializedParams) -> None:
    """Start what needs a client that listens."""
    server.told.listening = True
    for folder in server.session.folders:
        server.watcher.watch(folder)
    server.changed(())
    await asyncio.gather(_register(server), did_change_configuration.fetch(server))


async def _register(server: GraphGuardServer) -> None:
    """Have the client watch too: it sees what the system's watcher cannot, such as remote folders."""
    if not server.supports("workspace.did_change_watched_files.dynamic_registration"):
        return
    patterns = [types.FileSystemWatcher(pattern) for pattern in ("**/*.py", "**/pyproject.toml")]
    options = types.DidChangeWatchedFilesRegistrationOptions(patterns)
    registration = types.Registration("graphguard-files", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
    try:
        # shielded: pygls fails on the answer to a request whose task was cancelled
        await asyncio.shield(server.client_register_capability_async(types.RegistrationParams([registration])))
    except JsonRpcException:
        return
