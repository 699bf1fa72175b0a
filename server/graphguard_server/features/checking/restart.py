"""``graphguard/restart``: stop processes; they start again when they are next needed."""

from __future__ import annotations

from typing import Any, Final

from graphguard_server.serving import protocol
from graphguard_server.serving.server import GraphGuardServer

METHOD: Final = protocol.RESTART
COMMAND: Final = "graphguard.restart"


async def handle(server: GraphGuardServer, params: Any) -> dict[str, str]:
    """Stop the named process, or all; runs under way are tried again."""
    name = params.get("process") if isinstance(params, dict) else None
    session = server.session
    chosen = [each for each in (*session.workers.values(), session.prover) if name in (None, each.name)]
    for process in chosen:
        await process.restart()
    return {"message": f"stopped: {', '.join(each.name for each in chosen) or 'nothing was running'}"}
