"""``graphguard/relations``: both programs side by side, for the relation explorer: the tree of modules, the break, the rows around it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from lsprotocol import types

from graphguard.ir.spans import Span
from graphguard_server.features.checking.rows import location, plain_rows
from graphguard_server.features.checking.run import wanted
from graphguard_server.processes.processes import CallFailedError, ProcessDiedError
from graphguard_server.serving import protocol
from graphguard_server.serving.server import GraphGuardServer
from graphguard_server.state.checks import Run
from graphguard_server.state.lookup import at
from graphguard_server.state.pictures import Picture, nearest, needed_and_found
from graphguard_server.texts.documents import path_of
from graphguard_server.texts.places import Place

METHOD: Final = protocol.RELATIONS
COMMAND: Final = "graphguard.relations"

PICTURE_SECONDS: Final = 60.0
# Rows that come along, so that what is seen first needs no further question.
AROUND: Final = 100


async def handle(server: GraphGuardServer, params: Any) -> dict[str, Any] | None:
    """The picture of the check at a position, or of the one named; None where there is no result yet."""
    values = params if isinstance(params, dict) else {}
    run, places = _chosen(server, values)
    if run is None or run.report is None or not run.report.proof:
        return None
    proof = run.report.proof
    picture = server.pictures.known(run)
    if picture is None:
        try:
            answer = await server.session.prover.call("picture", {"proof": proof}, PICTURE_SECONDS)
        except (CallFailedError, ProcessDiedError):
            # the proof was lost with its process: made again for the next request
            server.session.ask([run.key], force=True)
            return None
        picture = server.pictures.keep(run, proof, answer)
    return _drawn(server, picture, places)


def _chosen(server: GraphGuardServer, values: dict[str, Any]) -> tuple[Run | None, tuple[Place, ...]]:
    """The run to draw, a broken one first, and what is under the cursor where a position was given."""
    session = server.session
    if isinstance(values.get("check"), str):
        row = {"id": values["check"], "mesh": values.get("mesh")}
        runs = [found[1] for key in wanted(server, {"checks": [row]}) if (found := session.run_of(key)) is not None]
        return (runs[0] if runs else None), ()
    path = path_of(str(values.get("uri", "")))
    position = _position(values.get("position"))
    if path is None or position is None:
        return None, ()
    here = sorted(at(session, path, position), key=lambda found: _rank(found.run))
    if here:
        return here[0].run, here[0].places
    return min((run for run in session.runs_in(path) if run.report is not None), key=_rank, default=None), ()


def _rank(run: Run) -> int:
    return ("broken", "unknown").index(run.result) if run.result in ("broken", "unknown") else 2


def _position(row: object) -> types.Position | None:
    if not isinstance(row, dict):
        return None
    line, character = row.get("line"), row.get("character")
    if not isinstance(line, int) or not isinstance(character, int) or min(line, character) < 0:
        return None
    return types.Position(line, character)


def _drawn(server: GraphGuardServer, picture: Picture, places: Iterable[Place]) -> dict[str, Any]:
    run = picture.run
    assert run.report is not None
    found = picture.found()
    breaks = sorted({*found.values(), *picture.frontier})
    start = min(found.values(), default=next(iter(breaks), None))
    focus = _focus(picture, places, breaks)
    middle = focus if focus is not None else start or 0
    first = max(0, middle - AROUND)
    answer = {
        "check": run.key.check,
        "mesh": run.shown_mesh,
        "verdict": run.result,
        "version": server.session.documents.version(run.report.check.span.file),
        "stale": run.stale,
        "picture": picture.proof,
        "ranks": picture.ranks,
        "columns": picture.columns,
        "total": len(picture.rows),
        "groups": [
            {"from": group.pop("start"), "to": group.pop("end"), **group} for group in map(dict, picture.groups)
        ],
        "breaks": breaks,
        "findings": _findings(server, run, found),
        "files": [server.session.documents.uri(file) for file in sorted(_files(picture))],
        "first": first,
        "rows": plain_rows(server, picture, first, middle + AROUND, picture.columns),
    }
    return {**answer, **({} if focus is None else {"focus": focus}), **({} if start is None else {"start": start})}


def _findings(server: GraphGuardServer, run: Run, rows: Mapping[Span, int]) -> list[dict[str, Any]]:
    """What is wrong, in words, and where, in the source and among the rows."""
    assert run.report is not None
    found = []
    for diagnostic in run.report.diagnostics:
        row: dict[str, Any] = {
            "rule": diagnostic.rule,
            "headline": diagnostic.headline,
            **needed_and_found(diagnostic.message),
            "fixes": [fix.title for fix in diagnostic.fixes],
        }
        if diagnostic.span is not None:
            row["location"] = location(server, run, diagnostic.span)
            if diagnostic.span in rows:
                row["row"] = rows[diagnostic.span]
        found.append(row)
    return found


def _files(picture: Picture) -> set[str]:
    return {span.file for spans in picture.spans for span in spans[:1]}


def _focus(picture: Picture, places: Iterable[Place], breaks: Iterable[int]) -> int | None:
    """The row of what is under the cursor: of layers that share their code the one next to the break."""
    asked: dict[tuple[Span, str], None] = dict.fromkeys((place.span, place.phase) for place in places)
    for span, phase in asked:
        rows = picture.at(span, phase)
        if rows:
            return nearest(rows, breaks)
    return None
