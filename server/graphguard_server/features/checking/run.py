"""``graphguard/run``: run checks because the user says so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from graphguard_server.serving import protocol
from graphguard_server.serving.server import GraphGuardServer
from graphguard_server.state.checks import RunKey, mesh_label
from graphguard_server.texts.documents import path_of

METHOD: Final = protocol.RUN
COMMAND: Final = "graphguard.run"


def handle(server: GraphGuardServer, params: Any) -> dict[str, int]:
    """Accept the runs; what becomes of them comes through ``graphguard/checks``."""
    values = params if isinstance(params, dict) else {}
    queued = server.session.ask(wanted(server, values), force=values.get("force") is True)
    return {"queued": queued}


def wanted(server: GraphGuardServer, values: dict[str, Any]) -> list[RunKey]:
    """The runs that ``checks``, ``uri``, or neither, name."""
    runs = list(server.session.runs())
    if isinstance(values.get("checks"), list):
        return [run.key for run in runs if any(_named(run.key, each) for each in values["checks"])]
    if isinstance(values.get("uri"), str):
        path = path_of(values["uri"])
        files = {check.ref.id for project in server.session.projects.values() for check in _in_file(project, path)}
        return [run.key for run in runs if run.key.check in files]
    return [run.key for run in runs]


def _in_file(project: Any, path: str | None) -> Iterable[Any]:
    return [check for check in project.checks.values() if check.file == path]


def _named(key: RunKey, row: object) -> bool:
    if not isinstance(row, dict) or row.get("id") != key.check:
        return False
    mesh = row.get("mesh")
    return not isinstance(mesh, dict) or not key.mesh or mesh_label(mesh) == key.mesh
