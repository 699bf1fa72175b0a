"""``graphguard/relations``: both programs with the relations between them, for the relation explorer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from lsprotocol import types

from graphguard.ir.graph import COLLECTIVES
from graphguard.ir.plain import CodecError, from_plain
from graphguard.ir.spans import Span
from graphguard_server import protocol
from graphguard_server.checks import Run
from graphguard_server.documents import path_of
from graphguard_server.features.checks import plain_range
from graphguard_server.features.run import wanted
from graphguard_server.lookup import at
from graphguard_server.processes import CallFailedError, ProcessDiedError
from graphguard_server.server import GraphGuardServer

METHOD: Final = protocol.RELATIONS
COMMAND: Final = "graphguard.relations"

_STATES: Final = {"related": "proved", "off": "unknown", "frontier": "off", "input": "none"}
PICTURE_SECONDS: Final = 30.0


async def handle(server: GraphGuardServer, params: Any) -> dict[str, Any] | None:
    """The picture of the check at a position, or of the one named; None where there is no result yet."""
    values = params if isinstance(params, dict) else {}
    run, focus = _chosen(server, values)
    if run is None or run.report is None or not run.report.proof:
        return None
    try:
        picture = await server.session.prover.call("picture", {"proof": run.report.proof}, PICTURE_SECONDS)
    except (CallFailedError, ProcessDiedError):
        server.session.ask(
            [run.key], force=True
        )  # the proof was lost with its process: made again for the next request
        return None
    return _drawn(server, run, picture, focus)


def _chosen(server: GraphGuardServer, values: dict[str, Any]) -> tuple[Run | None, Span | None]:
    """The run to draw, and the place under the cursor where a position was given."""
    session = server.session
    if isinstance(values.get("check"), str):
        row = {"id": values["check"], "mesh": values.get("mesh")}
        runs = [found[1] for key in wanted(server, {"checks": [row]}) if (found := session.run_of(key)) is not None]
        return (runs[0] if runs else None), None
    path = path_of(str(values.get("uri", "")))
    position = _position(values.get("position"))
    if path is None or position is None:
        return None, None
    for tensors in at(session, path, position):
        return tensors.run, tensors.places[0].span
    return next((run for run in session.runs_in(path) if run.report is not None), None), None


def _position(row: object) -> types.Position | None:
    if not isinstance(row, dict):
        return None
    line, character = row.get("line"), row.get("character")
    if not isinstance(line, int) or not isinstance(character, int) or min(line, character) < 0:
        return None
    return types.Position(line, character)


def _drawn(server: GraphGuardServer, run: Run, picture: dict[str, Any], focus: Span | None) -> dict[str, Any]:
    boxes, edges = picture["boxes"], picture["edges"]
    graph_of = {box["id"]: box["graph"] for box in boxes}
    numbers = sorted(set(graph_of.values()))
    consumed = {edge[0] for edge in edges}
    assert run.report is not None
    answer = {
        "check": run.key.check,
        "mesh": run.shown_mesh,
        "verdict": run.result,
        "version": server.session.documents.version(run.report.check.span.file),
        "stale": run.stale,
        "graphs": [
            {
                "name": "specification" if number < 0 else f"rank {number}",
                "nodes": [_node(server, run, box, consumed) for box in boxes if box["graph"] == number],
                "edges": [{"from": a, "to": b} for a, b in edges if graph_of[a] == number],
            }
            for number in numbers
        ],
        "relations": [
            {"spec": box["id"], "text": box["relation"], "parts": _parts(box, graph_of)}
            for box in boxes
            if box["graph"] < 0 and box["relation"]
        ],
        "broken": [{"graph": numbers.index(box["graph"]), "node": box["id"]} for box in _broken(run, boxes)],
    }
    at_cursor = _focus(boxes, numbers, focus)
    return {**answer, "focus": at_cursor} if at_cursor is not None else answer


def _broken(run: Run, boxes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The boxes off the relation; where all are on it and only a promise fails, what each graph computes at the findings."""
    frontier = [box for box in boxes if box["state"] == "frontier"]
    if frontier or run.report is None or run.result != "broken":
        return frontier
    spans = {diagnostic.span for diagnostic in run.report.diagnostics if diagnostic.span is not None}
    last = {(box["graph"], _span(box)): box for box in boxes if box["graph"] >= 0 and _span(box) in spans}
    return list(last.values())


def _parts(box: dict[str, Any], graph_of: dict[str, int]) -> list[dict[str, Any]]:
    return [{"graph": graph_of[part] + 1, "node": part} for part in box.get("parts", ()) if part in graph_of]


def _node(server: GraphGuardServer, run: Run, box: dict[str, Any], consumed: set[str]) -> dict[str, Any]:
    node = {
        "id": box["id"],
        "op": box["operator"],
        "label": box["name"] or box["operator"].removeprefix("aten.").removeprefix("gg.").partition(".")[0],
        "type": f"[{', '.join(map(str, box['shape']))}]",
        "kind": _kind(box, consumed),
        "state": _STATES.get(box["state"], "none"),
        "phase": box["phase"],
        "module": box.get("module", ""),
        "text": box["relation"],
    }
    span = _span(box)
    if span is not None:
        location = server.session.converter.location(run, span)
        node["location"] = {"uri": location.uri, "range": plain_range(location.range)}
    return node


def _kind(box: dict[str, Any], consumed: set[str]) -> str:
    if box["state"] == "input":
        return "input"
    if box["operator"] in COLLECTIVES:
        return "collective"
    return "output" if box["name"] and box["id"] not in consumed else "operator"


def _span(box: dict[str, Any]) -> Span | None:
    try:
        return from_plain(Span, box["span"]) if box.get("span") else None
    except CodecError:
        return None


def _focus(boxes: Iterable[dict[str, Any]], numbers: list[int], span: Span | None) -> dict[str, Any] | None:
    if span is None:
        return None
    # a line is what its last operator computes; every rank computes the same, the first one stands for all
    there = [box for box in boxes if _span(box) == span]
    box = next((box for box in reversed(there) if box["graph"] == there[0]["graph"]), None)
    return None if box is None else {"graph": numbers.index(box["graph"]), "node": box["id"]}
