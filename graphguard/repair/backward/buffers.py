"""Gradients that are added up in one buffer for several parameters, each of which has a part of it."""

from __future__ import annotations

from typing import Final

from graphguard.ir import Graph, Node, Var
from graphguard.ops import aten
from graphguard.repair.graph.slices import REARRANGING

_ARGUMENTS: Final = 4  # of a slice without a step: what it reads, and from where to where along which dim


def gradient_in(graph: Graph, node: Node) -> Node | None:
    """The gradient that was added to the part of a buffer which a node reads where no line of the program does, as a result is handed out; None for any other node."""
    if node.stack >= 0 or node.op != aten.slice.Tensor:
        return None
    value = _written(graph, node)
    added = _producer(graph, value) if value is not None else None
    while added is not None and added.op in REARRANGING:
        added = _producer(graph, next(added.operands()))
    if added is None or added.op != aten.add.Tensor:
        return None
    made = [_producer(graph, operand) for operand in added.operands()]
    gradients = [one for one in made if one is not None and one.phase == "backward" and one.forward >= 0]
    return gradients[0] if len(gradients) == 1 else None


def _written(graph: Graph, node: Node) -> Var | None:
    """What was written last to just the elements that a slice reads; None where others were written with them."""
    if len(node.args) != _ARGUMENTS:
        return None
    base, dim, start, end = node.args
    while isinstance(base, Var) and (scatter := _producer(graph, base)) is not None:
        if scatter.op != aten.slice_scatter.default or len(scatter.args) != _ARGUMENTS + 1:
            return None
        base, value, along, first, last = scatter.args
        if (along, first, last) == (dim, start, end):
            return value if isinstance(value, Var) else None
        if along != dim or not _is_apart((start, end), (first, last)):
            return None
    return None


def _is_apart(one: tuple[object, object], other: tuple[object, object]) -> bool:
    match one, other:
        case (int(start), int(end)), (int(first), int(last)):
            return end <= first or last <= start
    return False


def _producer(graph: Graph, var: Var) -> Node | None:
    producers = graph.producers()
    return graph.nodes[producers[var]] if var in producers else None
