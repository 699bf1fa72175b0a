"""``graphguard/status``: how the whole server is."""

from __future__ import annotations

from collections import Counter
from typing import Any

from graphguard_server.processes.processes import Process
from graphguard_server.serving import protocol
from graphguard_server.serving.server import GraphGuardServer
from graphguard_server.state.checks import Run
from graphguard_server.state.convert import run_mesh


def send(server: GraphGuardServer) -> None:
    """Send the status where it has changed."""
    now = status(server)
    if now != server.told.status:
        server.told.status = now
        server.protocol.notify(protocol.STATUS, {"revision": server.told.next_revision(), **now})


def status(server: GraphGuardServer) -> dict[str, Any]:
    """The status without its revision."""
    session = server.session
    runs = list(session.runs())
    processes = [*session.workers.values(), session.prover]
    busy = any(run.activity != "idle" for run in runs)
    health, detail = _health(server, processes)
    return {
        "health": health,
        "busy": busy,
        "trusted": session.trusted,
        "message": _message(server, runs),
        "detail": detail,
        "counts": _counts(runs),
        "processes": [
            {"name": each.name, "state": each.state, "restarts": each.restarts, "message": each.message}
            for each in processes
        ],
    }


def _counts(runs: list[Run]) -> dict[str, int]:
    results = Counter(run.result for run in runs)
    counts = {name: results[name] for name in ("proved", "assumed", "unknown", "broken", "error")}
    counts["stale"] = sum(run.stale for run in runs)
    counts["running"] = sum(run.activity != "idle" for run in runs)
    return counts


def _health(server: GraphGuardServer, processes: list[Process]) -> tuple[str, str]:
    session = server.session
    for process in processes:
        if process.state == "failed":
            return "error", f"{process.name}: {process.message}; set graphguard.interpreter to a Python that has torch"
    if session.troubles:
        return "error", next(iter(session.troubles.values()))
    if not session.trusted:
        return "warning", "the workspace is not trusted: no code is run"
    for process in processes:
        if process.state == "waiting":
            return "warning", f"the {process.name} {process.message}; it is started again"
    return "ok", ""


def _message(server: GraphGuardServer, runs: list[Run]) -> str:
    if not server.session.trusted:
        return "restricted: the workspace is not trusted"
    active = [run for run in runs if run.activity in ("tracing", "proving")]
    if active:
        run = active[0]
        more = f" and {len(active) - 1} more" if len(active) > 1 else ""
        return f"{run.activity} {run.key.check.partition('::')[2]} · {run_mesh(run)}{more}"
    if any(run.activity == "queued" for run in runs):
        return "waiting to check"
    counts = _counts(runs)
    shown = [f"{counts[name]} {name}" for name in ("broken", "error", "unknown", "assumed", "proved") if counts[name]]
    return ", ".join(shown) or ("no checks yet" if not runs else "not checked yet")
