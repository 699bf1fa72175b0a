"""Ranks' arithmetic in a narrow type, written as what it is: arithmetic in a wide one and a rounding."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from graphguard.ir import Capture, DType, Graph, Node, Var
from graphguard.ir.graph import Arg
from graphguard.ir.validity import well_formed
from graphguard.ops import REDUCTIONS, aten
from graphguard.refine.evaluation.traces import Rounding
from graphguard.refine.outcome import Location

ROUNDED: Final = "gg.rounded"


def is_unmeant(node: Node) -> bool:
    """Whether a call is a rounding by arithmetic of numbers that the specification has in the wide type alone."""
    return node.op == ROUNDED and not node.args[1]


def exposed(capture: Capture, roundings: Mapping[Location, Sequence[Rounding]]) -> Capture:
    """A capture in which calls of ranks that round compute in the wide type and are rounded by a call of their own."""
    ranks = list(capture.ranks)
    for rank in {where.graph for where in roundings}:
        ranks[rank] = _exposed(
            ranks[rank], {where.node: found for where, found in roundings.items() if where.graph == rank}
        )
    return well_formed(replace(capture, ranks=tuple(ranks)))


def _exposed(graph: Graph, roundings: Mapping[int, Sequence[Rounding]]) -> Graph:
    types = dict(graph.types)
    number = itertools.count(max(var.id for var in types) + 1)
    nodes: list[Node] = []

    def another(var: Var, dtype: str) -> Var:
        new = Var(next(number))
        types[new] = replace(types[var], dtype=dtype)
        return new

    def widened(arg: Arg, node: Node, dtype: str) -> Arg:
        """What a collective is given, in the type of its result."""
        if isinstance(arg, tuple):
            return tuple(widened(item, node, dtype) for item in arg)
        assert isinstance(arg, Var)
        wide = another(arg, dtype)
        nodes.append(replace(node, op=aten._to_copy.default, args=(arg,), kwargs={"dtype": DType(dtype)}, outs=(wide,)))
        return wide

    for index, node in enumerate(graph.nodes):
        found = roundings.get(index, ())
        outs, casts = list(node.outs), []
        for rounding in found:
            out = outs[rounding.index]
            wide = outs[rounding.index] = another(out, rounding.wide)
            casts.append(replace(node, op=ROUNDED, args=(wide, rounding.known), kwargs={}, outs=(out,), draw=None))
        if found and node.op in REDUCTIONS:
            node = replace(node, args=(widened(node.args[0], node, found[0].wide), *node.args[1:]))
        nodes += [replace(node, outs=tuple(outs)) if casts else node, *casts]
    return replace(graph, nodes=tuple(nodes), types=types)
