"""Which integers the leaves of a program may hold, and which of them it tells apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from graphguard.ir import Capture, Graph, Node, Var
from graphguard.ir.lookups import implied
from graphguard.ops import operators
from graphguard.rules import kind_of
from graphguard.rules.basis.registry import INTEGER_BOUNDS

_BOUNDING: Final = operators(lambda op: op.compares or op.bounds)
# Operators whose integer literals part a range: on one side of the literal, or next to it, something else happens.
_PARTING: Final = _BOUNDING | operators(lambda op: op.shifts)
_UNBOUNDED: Final = 1e6  # masks and the like: no input comes near
_MOST: Final = 64  # edges of one leaf
_BOTH: Final = 8
_WIDE: Final = 1000


@dataclass(frozen=True, slots=True)
class IndexRange:
    """Integers from ``low`` up to, not including, ``high``; at ``edges`` among them a program may go another way.

    ``free``: nobody said so, and no look-up does.  Any integer may come, then: of ``signs`` both, and in its type's whole ``width``, where that is narrow, or past
    the ends of the narrow types that the programs have.
    """

    low: int = 0
    high: int = 4
    edges: tuple[int, ...] = ()
    free: bool = False
    signs: tuple[int, int] = (0, 4)
    width: tuple[int, int] = (0, 4)
    beyond: tuple[int, ...] = ()


def index_ranges(capture: Capture) -> dict[str, IndexRange]:
    """The range of every integer leaf: declared, else what the specification's look-ups allow, else its own extents.

    That of targets is the range of the classes; ignored ones are beside it.
    """
    known = implied(capture.spec) if capture.spec is not None else {}
    edges, ends = edges_of(capture), _ends(capture)
    spans: dict[str, IndexRange] = {}
    for leaf in capture.leaves:
        if kind_of(leaf.type.dtype) != "int":
            continue
        low, high = known.get(leaf.name, (0, max((4, *(size for size in leaf.type.shape if isinstance(size, int))))))
        if leaf.ignored is None:
            low = leaf.low if leaf.low is not None else low
            high = leaf.high if leaf.high is not None else max(high, low + 1)
        within = _some([edge for edge in edges if low <= edge < high])
        free = leaf.name not in known and leaf.low is None and leaf.high is None and leaf.ignored is None
        spans[leaf.name] = _free(leaf.type.dtype, high, within, edges, ends) if free else IndexRange(low, high, within)
    return spans


def _free(dtype: str, high: int, within: tuple[int, ...], edges: list[int], ends: frozenset[int]) -> IndexRange:
    """Any integer of a type: small ones as a rule."""
    least, most = INTEGER_BOUNDS.get(dtype, (-_WIDE, _WIDE))
    signs = max(least, -max(high, _BOTH)), min(most, max(high, _BOTH))
    beyond = {number for edge in edges for number in (edge, -edge)} | ends
    fitting = _some(sorted(number for number in beyond if dtype not in INTEGER_BOUNDS or least <= number < most))
    return IndexRange(0, min(high, most), within, True, signs, (least, most), fitting)


def _some(numbers: list[int]) -> tuple[int, ...]:
    return tuple(numbers[:: -(-len(numbers) // _MOST) or 1])


def _ends(capture: Capture) -> frozenset[int]:
    """The first and last numbers of the narrow types that programs have, and those next to them."""
    narrow = {kind.dtype for graph in capture.graphs for kind in graph.types.values()} & INTEGER_BOUNDS.keys()
    bounds = (bound for dtype in narrow for bound in INTEGER_BOUNDS[dtype])
    return frozenset(number for bound in bounds for number in (bound - 1, bound))


def furthest_bound(capture: Capture) -> float:
    """The largest number at which programs cut off their reals, or with which they compare them; one where there is none."""
    bounds = (
        abs(arg)
        for graph in capture.graphs
        for node in graph.nodes
        if node.op in _BOUNDING
        for arg in node.args[1:]
        if isinstance(arg, int | float)
    )
    return max((bound for bound in bounds if bound < _UNBOUNDED), default=1.0)


def edges_of(capture: Capture) -> list[int]:
    """Integers next to the literals with which the programs compare their integers, or which they take from them: ``x >= 49152``, ``x - start``."""
    literals = {number for graph in capture.graphs for node in graph.nodes for number in _parting(graph, node)}
    return sorted({edge for number in literals for edge in (number - 1, number, number + 1)})


def _parting(graph: Graph, node: Node) -> list[int]:
    if node.op not in _PARTING:
        return []
    read = [argument for argument in node.args if isinstance(argument, Var)]
    if not all(graph.types[var].dtype.startswith(("int", "uint")) for var in read):
        return []
    return [abs(argument) for argument in node.args if isinstance(argument, int) and not isinstance(argument, bool)]
