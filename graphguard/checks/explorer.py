"""Both programs as one picture: nodes, edges, how every tensor stands to the other program, for the relation explorer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from graphguard.ir import Capture, Graph, Node, Span, Var
from graphguard.refine.found.naming import names_of
from graphguard.refine.outcome import SPECIFICATION, Location
from graphguard.refine.proving.proof import Proof
from graphguard.relations.relation import held

State = Literal["related", "off", "frontier", "input"]


@dataclass(frozen=True, slots=True)
class Box:
    """One tensor: an input, or an operator's first result.

    ``graph`` is a rank or -1 for the specification; ``relation`` is one line of text, empty where there is none.  ``parts`` of a
    specification's box are the ranks' boxes that its relation is built from.
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
    parts: tuple[str, ...] = ()


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
    made: dict[int, dict[Var, str]] = {}
    graphs = [] if capture.spec is None else [(SPECIFICATION, capture.spec)]
    for number, graph in (*graphs, *enumerate(capture.ranks)):
        made[number] = _draw(number, graph, proof, frontier, boxes, edges)
    aligned = _parts(capture, proof, made)
    return Picture(
        tuple(replace(box, parts=aligned.get(box.id, ())) for box in boxes), tuple(edges), proof.outcome.proved
    )


def _parts(capture: Capture, proof: Proof, made: dict[int, dict[Var, str]]) -> dict[str, tuple[str, ...]]:
    """For every box of the specification, the ranks' boxes in its relation."""
    named = {rank: {name: var for var, name in names_of(graph).items()} for rank, graph in enumerate(capture.ranks)}
    found: dict[str, tuple[str, ...]] = {}
    for var, identity in made.get(SPECIFICATION, {}).items():
        relation = proof.relation(var)
        if relation is None:
            continue
        variables = ((part.rank, named[part.rank].get(part.name)) for part in held(relation.expression))
        boxes = [made[rank].get(mine) for rank, mine in variables if mine is not None]
        found[identity] = tuple(dict.fromkeys(box for box in boxes if box is not None))
    return found


def _draw(
    number: int, graph: Graph, proof: Proof, frontier: set[Location], boxes: list[Box], edges: list[tuple[str, str]]
) -> dict[Var, str]:
    """Append a graph's boxes and edges; the box of every variable."""
    made: dict[Var, str] = {}
    named = {var: name for name, var in graph.outputs.items()}

    def source(var: Var) -> str:
        if var not in made:
            made[var] = f"{number}:v{var.id}"
            name = graph.labels.get(var) or graph.inputs.get(var) or "constant"
            boxes.append(
                Box(made[var], number, "", name, shown_shape(graph, var), "prelude", "input", _text(number, var, proof))
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
                shown_shape(graph, node.outs[0]),
                node.phase,
                state,
                text,
                _span(graph, node),
            )
        )
    return made


def _text(number: int, var: Var, proof: Proof) -> str:
    if number == SPECIFICATION:
        relation = proof.relation(var)
        return "" if relation is None else str(relation)
    return proof.describe(number, var) or ""


def shown_shape(graph: Graph, var: Var) -> tuple[int, ...]:
    """A tensor's shape; -1 for a size that only the data decides."""
    return tuple(size if isinstance(size, int) else -1 for size in graph.types[var].shape)


def _span(graph: Graph, node: Node) -> Span | None:
    frames = graph.stack_of(node.stack) or graph.stack_of(node.forward)
    return frames[0].span if frames else None
