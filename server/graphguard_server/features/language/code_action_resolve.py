"""``codeAction/resolve``: the edit of a fix, once it is chosen or previewed."""

from __future__ import annotations

from typing import Any, Final

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from graphguard.report.diagnostics import Diagnostic, Fix
from graphguard_server.serving.server import GraphGuardServer
from graphguard_server.state.checks import Run, RunKey

METHOD: Final = types.CODE_ACTION_RESOLVE


def reference(run: Run, diagnostic: Diagnostic, fix: int) -> dict[str, Any]:
    """What an action carries, so that its edit is found again."""
    assert run.report is not None
    place = run.report.diagnostics.index(diagnostic)
    return {"run": list(run.key), "proof": run.report.proof, "diagnostic": place, "fix": fix}


def handle(server: GraphGuardServer, params: types.CodeAction) -> types.CodeAction:
    """The action with its edit; an error where the text has changed since, for the fix was proved on another."""
    if params.edit is not None or not isinstance(params.data, dict):
        return params
    found = _found(server, params.data)
    if found is None:
        raise JsonRpcException(
            code=types.LSPErrorCodes.ContentModified.value, message="the text has changed since this fix was proved"
        )
    params.edit = server.edit_of(*found)
    return params


def _found(server: GraphGuardServer, data: dict[str, Any]) -> tuple[Run, Fix] | None:
    try:
        known = server.session.run_of(RunKey(*map(str, data["run"])))
        run = known[1] if known is not None else None
        if run is None or run.stale or run.report is None or run.report.proof != data["proof"]:
            return None
        return run, run.report.diagnostics[data["diagnostic"]].fixes[data["fix"]]
    except (KeyError, IndexError, TypeError):
        return None
