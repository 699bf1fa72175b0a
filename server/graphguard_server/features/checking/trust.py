"""``graphguard/trust``: whether code of the workspace may run."""

from __future__ import annotations

from typing import Any, Final

from graphguard_server.serving import protocol
from graphguard_server.serving.server import GraphGuardServer

METHOD: Final = protocol.TRUST


def handle(server: GraphGuardServer, params: Any) -> None:
    """Only ``true`` itself is trust."""
    server.session.set_trust(isinstance(params, dict) and params.get("trusted") is True)
