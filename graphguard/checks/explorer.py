"""Both programs as one picture: nodes, edges, how every tensor stands to the other program, for the relation explorer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from graphguard.ir import Capture, Graph, Node, Span, Var
from graphguard.refine.outcome import SPECIFICATION, Location
from graphguard.refine.prove import Proof

State = Literal["related", "off", "frontier", "input"]


@dataclass(frozen=True, slots=True)
class Box:
    """One tensor: an input, or an operator's first result.

    ``graph`` is a rank or -1 for the specification; ``relation`` is one line of text, empty where there is none.
    """

    id: str
    graph: int
    operator: str
    name: str
    shape: tuple[int, ...]
    phase: str
    state: State
    relation: str = ""
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """All boxes, and the edges between them as pairs of ids."""

    boxes: tuple[Box, ...]
    edges: tuple[tuple[str, str], ...]
    verdict: bool


def picture(capture: Capture, proof: Proof) -> Picture:
    """The specification and every rank; preludes are drawn as the inputs that they make."""
    boxes: list[Box] = []
    edges: list[tuple[str, str]] = []
    frontier = {*proof.outcome.specification_frontier, *proof.outcome.implementation_frontier}
    graphs = [] if capture.spec is None else [(SPECIFICATION, capture.spec)]
    for number, graph in (*graphs, *enumerate(capture.ranks)):
        _draw(number, graph, proof, frontier, boxes, edges)
    return Picture(tuple(boxes), tuple(edges), proof.outcome.proved)


def _draw(
    number: int, graph: Graph, proof: Proof, frontier: set[Location], boxes: list[Box], edges: list[tuple[str, str]]
) -> None:
    made: dict[Var, str] = {}
    named = {var: name for name, var in graph.outputs.items()}

    def source(var: Var) -> str:
        if var not in made:
            made[var] = f"{number}:v{var.id}"
            name = graph.labels.get(var) or graph.inputs.get(var) or "constant"
            boxes.append(
                Box(made[var], number, "", name, _shape(graph, var), "prelude", "input", _text(number, var, proof))
            )
        return made[var]

    for index, node in enumerate(graph.nodes):
        if node.phase == "prelude" or not node.outs:
            continue
        identity = f"{number}:n{index}"
        edges.extend((source(operand), identity) for operand in dict.fromkeys(node.operands()))
        made.update(dict.fromkeys(node.outs, identity))
        text = _text(number, node.outs[0], proof)
        state: State = "frontier" if Location(number, index) in frontier else "related" if text else "off"
        name = named.get(node.outs[0]) or graph.labels.get(node.outs[0], "")
        boxes.append(
            Box(
                identity,
                number,
                node.op,
                name,
                _shape(graph, node.outs[0]),
                node.phase,
                state,
                text,
                _span(graph, node),
            )
        )


def _text(number: int, var: Var, proof: Proof) -> str:
    if number == SPECIFICATION:
        relation = proof.relation(var)
        return "" if relation is None else str(relation)
    return proof.describe(number, var) or ""


def _shape(graph: Graph, var: Var) -> tuple[int, ...]:
    return tuple(size if isinstance(size, int) else -1 for size in graph.types[var].shape)


def _span(graph: Graph, node: Node) -> Span | None:
    frames = graph.stack_of(node.stack) or graph.stack_of(node.forward)
    return frames[0].span if frames else None
