"""Integers that say where to look: which leaf they come from, and what the look-ups allow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from graphguard.ir.graph import Graph, Node, Var
from graphguard.ops import aten, operators, traits_of

#: Operators that keep elements what they are, wherever these stand.
MOVING: Final = operators(lambda op: op.casts or op.moves in ("same", "view", "permute", "expand", "part", "split"))
_JOINING: Final = operators(lambda op: op.moves == "join")
_CHOOSING: Final = operators(lambda op: op.mask_at == 0)
_MULTIPLYING: Final = operators(lambda op: op.symbol == "*")
_SHIFTING: Final = operators(lambda op: op.symbol in ("+", "-"))
# Operators whose integer result holds the values of their first operand, at most shifted or replaced in places.
_PASSING: Final = (
    MOVING
    | _JOINING
    | _MULTIPLYING
    | operators(lambda op: op.mask_at is not None)
    | {aten.index_put.default, aten.copy.default}
)


def implied(spec: Graph) -> dict[str, tuple[int, int]]:
    """The range of every leaf that the specification looks something up with, half-open, as its look-ups need."""
    producers = spec.producers()
    spans: dict[str, tuple[int, int]] = {}
    for node in spec.nodes:
        for index, extent in looked_up(spec, node):
            for leaf, shift in origins(spec, producers, index):
                low, high = spans.get(leaf, (-(1 << 62), 1 << 62))
                spans[leaf] = (max(low, shift), min(high, extent + shift))
    return {leaf: (low, high) for leaf, (low, high) in spans.items() if low < high}


def looked_up(spec: Graph, node: Node) -> list[tuple[Var, int]]:
    """Index operands of a look-up, each with the extent it looks into."""
    traits = traits_of(node.op)
    if traits.indexes:
        table, indices = node.args[0], node.args[1]
        if not isinstance(table, Var) or not isinstance(indices, tuple):
            return []
        sizes = spec.types[table].shape
        pairs = [(index, sizes[dim]) for dim, index in enumerate(indices) if dim < len(sizes)]
        return [(i, n) for i, n in pairs if isinstance(i, Var) and isinstance(n, int) and spec.types[i].dtype != "bool"]
    if traits.looks_up is None:
        return []
    table_at, fixed_dim, index_at = traits.looks_up
    index = node.args[index_at]
    extent: object = node.args[1] if table_at is None and len(node.args) > 1 else -1
    if table_at is not None:
        table = node.args[table_at]
        dim = node.args[1] if fixed_dim is None else fixed_dim
        if isinstance(table, Var) and isinstance(dim, int) and spec.types[table].shape:
            extent = spec.types[table].shape[dim]
    return [(index, extent)] if isinstance(index, Var) and isinstance(extent, int) and extent > 0 else []


def origins(graph: Graph, producers: Mapping[Var, int], var: Var) -> tuple[tuple[str, int], ...]:
    """The leaves whose values an index holds, several where it is joined of several, and by how much the leaf's values lie above them."""
    shift = 0
    while var in producers:
        node = graph.nodes[producers[var]]
        held = held_by(graph, producers, node)
        literal = next((arg for arg in node.args[1:] if isinstance(arg, int) and not isinstance(arg, bool)), None)
        if node.op in _SHIFTING and len(held) == 1 and literal is not None:
            shift += literal if traits_of(node.op).symbol == "-" else -literal
        elif node.op not in _PASSING or not held:
            return ()
        if len(held) > 1:
            found = [origins(graph, producers, one) for one in held]
            some = [each for each in found if each]
            leaves = [leaf for each in (some if node.op in _JOINING else some[:1]) for leaf in each]
            return tuple((leaf, shift + further) for leaf, further in dict.fromkeys(leaves))
        var = held[0]
    return ((graph.inputs[var], shift),) if var in graph.inputs else ()


def held_by(graph: Graph, producers: Mapping[Var, int], node: Node) -> tuple[Var, ...]:
    """The operands whose numbers a result may hold: both of what a condition chooses from, a factor beside a truth, all that are joined, else the first."""
    operands = tuple(arg for arg in node.args if isinstance(arg, Var))
    if node.op in _JOINING:
        return node.reads
    if node.op in _CHOOSING:
        return tuple(arg for arg in node.args[1:] if isinstance(arg, Var))
    if node.op in _MULTIPLYING:
        return tuple(one for one in operands if not is_truth(graph, producers, one)) if len(operands) == 2 else ()
    return operands if node.op in _SHIFTING else operands[:1]


def is_truth(graph: Graph, producers: Mapping[Var, int], var: Var) -> bool:
    """Whether a tensor holds truths, as numbers perhaps."""
    while graph.types[var].dtype != "bool":
        node = graph.nodes[producers[var]] if var in producers else None
        if node is None or node.op not in _PASSING or not isinstance(node.args[0], Var):
            return False
        var = node.args[0]
    return True
