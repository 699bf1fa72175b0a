"""``initialize``: take over what the client says about itself."""

from __future__ import annotations

from typing import Any, Final

from lsprotocol import types

from graphguard_server.serving.server import GraphGuardServer
from graphguard_server.state.session import read_options
from graphguard_server.texts.documents import path_of
from graphguard_server.texts.positions import encoding_of

METHOD: Final = types.INITIALIZE


def handle(server: GraphGuardServer, params: types.InitializeParams) -> None:
    """Remember folders, position encoding, trust and settings."""
    session = server.session
    session.documents.encoding = encoding_of(server.workspace.position_encoding)
    folders = [folder.uri for folder in params.workspace_folders or []] or (
        [params.root_uri] if params.root_uri else []
    )
    session.folders = [path for path in map(path_of, folders) if path is not None]
    options: Any = params.initialization_options
    for problem in read_options(session, options):
        session.troubles[problem] = problem
