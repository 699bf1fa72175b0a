"""``graphguard/clearCache``: forget every cached trace and proof."""

from __future__ import annotations

from typing import Any, Final

from graphguard_server.processes.processes import CallFailedError, ProcessDiedError
from graphguard_server.serving import protocol
from graphguard_server.serving.server import GraphGuardServer

METHOD: Final = protocol.CLEAR_CACHE
COMMAND: Final = "graphguard.clearCache"


async def handle(server: GraphGuardServer, _params: Any) -> dict[str, str]:
    """Clear where a process runs; one that does not has nothing in memory, and its next start reads what is on disk."""
    session = server.session
    removed = session.engine.clear_cache()
    problems = []
    for process in (*session.workers.values(), session.prover):
        if process.pid is None:
            continue
        try:
            await process.call("clear", {}, 30.0)
        except (CallFailedError, ProcessDiedError) as error:
            problems.append(f"{process.name}: {str(error).partition(chr(10))[0]}")
    return {"message": "; ".join(problems) or f"caches are empty ({removed} traces removed)"}
