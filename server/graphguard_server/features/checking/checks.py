"""``graphguard/checks``: every known check, its runs and their last results."""

from __future__ import annotations

from typing import Any

from graphguard_server.serving import protocol
from graphguard_server.serving.server import GraphGuardServer
from graphguard_server.state.checks import Check, Run


def send(server: GraphGuardServer) -> None:
    """Send the list where it has changed."""
    rows = [_check(server, check) for project in server.session.projects.values() for check in project.checks.values()]
    if rows != server.told.checks:
        server.told.checks = rows
        server.protocol.notify(protocol.CHECKS, {"revision": server.told.next_revision(), "checks": rows})


def _check(server: GraphGuardServer, check: Check) -> dict[str, Any]:
    documents = server.session.documents
    return {
        "id": check.ref.id,
        "name": check.ref.name,
        "uri": documents.uri(check.file),
        "range": plain_range(documents.ruler(check.file).range(check.ref.span)),
        "runs": [_run(server, run) for run in check.runs.values()],
    }


def _run(server: GraphGuardServer, run: Run) -> dict[str, Any]:
    report = run.report
    first = report.diagnostics[0] if report is not None and report.diagnostics else None
    row: dict[str, Any] = {
        "mesh": run.shown_mesh,
        "state": run.state,
        "stale": run.stale or (run.activity != "idle" and run.known),
        "described": run.described,
        "cached": report is not None and report.cached,
        "seconds": round(run.seconds, 4),
        "headline": run.failure or (first.headline if first is not None else ""),
        "message": run.failure or _message(run),
    }
    if first is not None and first.span is not None:
        location = server.session.converter.location(run, first.span)
        row["location"] = {"uri": location.uri, "range": plain_range(location.range)}
    return row


def _message(run: Run) -> str:
    if run.report is None:
        return ""
    parts = [diagnostic.message for diagnostic in run.report.diagnostics]
    if run.report.counterexample is not None:
        parts.append(f"counterexample: {run.report.counterexample}")
    parts.extend(f"assumed: {each}" for each in run.report.particular_assumptions)
    parts.extend(f"caution: {each}" for each in run.report.cautions)
    parts.extend(f"not compared: {each}" for each in run.report.not_compared)
    return "\n".join(parts)


def plain_range(place: Any) -> dict[str, Any]:
    """A range as plain data."""
    return {
        "start": {"line": place.start.line, "character": place.start.character},
        "end": {"line": place.end.line, "character": place.end.character},
    }
