"""``graphguard/marks``: which lines of a file were checked, and how that went."""

from __future__ import annotations

from typing import Any, Final

from graphguard_server.serving.server import GraphGuardServer
from graphguard_server.state.checks import Run

_WEIGHT: Final = {"proved": 0, "assumed": 1, "unknown": 2, "broken": 3}


def marks(server: GraphGuardServer, path: str) -> dict[str, Any]:
    """The parameters of the notification for one file; on a line with several results the gravest counts."""
    session = server.session
    lines: dict[int, tuple[str, str]] = {}
    runs = session.runs_in(path)
    for run in runs:
        for line, state, message in _lines(server, run, path):
            if line not in lines or _WEIGHT[state] > _WEIGHT[lines[line][0]]:
                lines[line] = (state, message)
    return {
        "uri": session.documents.uri(path),
        "version": session.documents.version(path),
        "stale": any(run.stale for run in runs),
        "marks": [
            {"line": line, "state": state, "message": message} for line, (state, message) in sorted(lines.items())
        ],
    }


def _lines(server: GraphGuardServer, run: Run, path: str) -> list[tuple[int, str, str]]:
    if run.result not in _WEIGHT or run.report is None:
        return []
    move = server.session.converter.move(run, path)
    found = []
    for diagnostic in run.report.diagnostics:
        span = diagnostic.span
        if span is not None and span.file == path:
            state = "broken" if run.result == "broken" and diagnostic.severity == "error" else "unknown"
            found.append((move(span.line - 1, span.column - 1)[0], state, diagnostic.headline))
    if run.result in ("proved", "assumed"):
        lines = {place.span.line for place in run.places or () if place.span.file == path and place.depth == 0}
        found.extend((move(line - 1, 0)[0], run.result, "") for line in sorted(lines))
    return found
