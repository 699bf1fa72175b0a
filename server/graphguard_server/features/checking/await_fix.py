"""``graphguard/awaitFix``: answered once no proved fix is looked for any more."""

from __future__ import annotations

from typing import Any, Final

from graphguard_server.features.checking.run import wanted
from graphguard_server.serving import protocol
from graphguard_server.serving.server import GraphGuardServer

METHOD: Final = protocol.AWAIT_FIX
COMMAND: Final = "graphguard.awaitFix"


async def handle(server: GraphGuardServer, params: Any) -> dict[str, int]:
    """Wait for the end of the search; how many proved fixes the named checks have then."""
    found = [
        each
        for key in wanted(server, params if isinstance(params, dict) else {})
        if (each := server.session.run_of(key))
    ]
    for _, run in found:
        while run.search is not None:
            await run.search.wait()
    reports = [run.report for _, run in found if run.report is not None]
    return {"fixes": sum(len(diagnostic.fixes) for report in reports for diagnostic in report.diagnostics)}
