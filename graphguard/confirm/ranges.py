"""Which integers the leaves of a program may hold, and which of them it tells apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from graphguard.ir import Capture, Graph, Node, Var
from graphguard.ir.lookups import implied
from graphguard.rules import kind_of

# Operators whose integer literals part a range: on one side of the literal, or next to it, something else happens.
_COMPARING: Final = {"lt", "le", "gt", "ge", "eq", "ne", "less", "less_equal", "greater", "greater_equal"}
_PARTING: Final = frozenset(_COMPARING | {"sub", "subtract", "rsub", "add", "clamp", "clamp_min", "clamp_max"})
_MOST: Final = 64  # edges of one leaf


@dataclass(frozen=True, slots=True)
class IndexRange:
    """Integers from ``low`` up to, not including, ``high``; at ``edges`` among them a program may go another way."""

    low: int = 0
    high: int = 4
    edges: tuple[int, ...] = ()


def index_ranges(capture: Capture) -> dict[str, IndexRange]:
    """The range of every integer leaf: declared, else what the specification's look-ups allow, else its own extents.

    That of targets is the range of the classes; ignored ones are beside it.
    """
    known = implied(capture.spec) if capture.spec is not None else {}
    edges = edges_of(capture)
    spans: dict[str, IndexRange] = {}
    for leaf in capture.leaves:
        if kind_of(leaf.type.dtype) != "int":
            continue
        low, high = known.get(leaf.name, (0, max((4, *(size for size in leaf.type.shape if isinstance(size, int))))))
        if leaf.ignored is None:
            low = leaf.low if leaf.low is not None else low
            high = leaf.high if leaf.high is not None else max(high, low + 1)
        within = [edge for edge in edges if low <= edge < high]
        spans[leaf.name] = IndexRange(low, high, tuple(within[:: -(-len(within) // _MOST) or 1]))
    return spans


def edges_of(capture: Capture) -> list[int]:
    """Integers next to the literals with which the programs compare their integers, or which they take from them: ``x >= 49152``, ``x - start``."""
    graphs = [graph for graph in (capture.spec, *capture.ranks) if graph is not None]
    literals = {number for graph in graphs for node in graph.nodes for number in _parting(graph, node)}
    return sorted({edge for number in literals for edge in (number - 1, number, number + 1)})


def _parting(graph: Graph, node: Node) -> list[int]:
    if node.op.split(".")[1] not in _PARTING:
        return []
    read = [argument for argument in node.args if isinstance(argument, Var)]
    if not all(graph.types[var].dtype.startswith(("int", "uint")) for var in read):
        return []
    return [abs(argument) for argument in node.args if isinstance(argument, int) and not isinstance(argument, bool)]
