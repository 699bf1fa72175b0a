"""``shutdown``: stop what runs before the client says ``exit``."""

from __future__ import annotations

from typing import Final

from lsprotocol import types

from graphguard_server.serving.server import GraphGuardServer

METHOD: Final = types.SHUTDOWN


async def handle(server: GraphGuardServer, _params: None) -> None:
    """End runs and processes."""
    await server.close()
