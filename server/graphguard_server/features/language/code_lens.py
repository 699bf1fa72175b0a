"""``textDocument/codeLens``: the verdict of every mesh above a check; a click runs it."""

from __future__ import annotations

from typing import Final

from lsprotocol import types

from graphguard_server.serving import protocol
from graphguard_server.serving.server import GraphGuardServer
from graphguard_server.state.checks import Run
from graphguard_server.state.convert import run_mesh
from graphguard_server.texts.documents import path_of

METHOD: Final = types.TEXT_DOCUMENT_CODE_LENS
OPTIONS: Final = types.CodeLensOptions(resolve_provider=False)

_MARKS: Final = {
    "proved": "✓ refines",
    "assumed": "✓ refines (assumed)",
    "broken": "✗ broken",
    "unknown": "? unknown",
    "error": "! error",
}


def handle(server: GraphGuardServer, params: types.CodeLensParams) -> list[types.CodeLens]:
    """One lens per run of each check of the file."""
    path = path_of(params.text_document.uri)
    session = server.session
    if path is None or not session.settings.code_lens:
        return []
    lenses: list[types.CodeLens] = []
    for project in session.projects.values():
        for check in project.checks.values():
            if check.file == path:
                place = session.documents.ruler(path).range(check.ref.span)
                lenses.extend(types.CodeLens(place, _command(run)) for run in check.runs.values())
    return lenses


def _command(run: Run) -> types.Command:
    argument = {"checks": [{"id": run.key.check, "mesh": run.mesh}], "force": True}
    return types.Command(_title(run), protocol.RUN.replace("/", "."), arguments=[argument])


def _title(run: Run) -> str:
    _, bracket, values = run.key.check.rpartition("::")[2].partition("[")
    what = f"{bracket}{values} {run_mesh(run)}".strip()
    if run.activity != "idle":
        return f"{what}: {run.activity} …"
    if not run.known:
        return f"{what}: run"
    stale = " (stale)" if run.stale else ""
    return f"{what}: {_MARKS[run.result]} · {run.seconds:.2f} s{stale}"
