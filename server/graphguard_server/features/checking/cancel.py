"""``graphguard/cancel``: stop runs; their last results stay."""

from __future__ import annotations

from typing import Any, Final

from graphguard_server.features.checking.run import wanted
from graphguard_server.serving import protocol
from graphguard_server.serving.server import GraphGuardServer

METHOD: Final = protocol.CANCEL
COMMAND: Final = "graphguard.cancel"


def handle(server: GraphGuardServer, params: Any) -> dict[str, int]:
    """Stop the named runs, or all."""
    return {"cancelled": server.session.cancel(wanted(server, params if isinstance(params, dict) else {}))}
