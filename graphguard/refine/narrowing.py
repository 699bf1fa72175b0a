"""Arithmetic of the ranks in a narrower type than that in which the specification has the same numbers.

Float types stand for the reals, so arithmetic in bfloat16 is that in float32 until it is rounded.  What a rank computes in bfloat16 and the specification in float32 alone
is a rounding that the specification lacks, although no cast says so.  Where the specification has the rounded numbers as well (a fused operator computes in
float32 and rounds once) they are what the rank has.  All other such calls are remembered: a program that has any is not proved, and :func:`exposed` writes them as
what they are, arithmetic in the wide type and a rounding, so that what proves, runs and explains casts does so with them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from graphguard.ir import Capture, DType, Graph, Node, TensorType, Var
from graphguard.ir.graph import Arg
from graphguard.refine.outcome import Location
from graphguard.relations.normal_form import NormalForm
from graphguard.relations.values import NormalValue
from graphguard.rules import find_rule
from graphguard.rules.casting import unknown_cast
from graphguard.rules.registry import FLOAT_BITS, holds

ROUNDED: Final = "gg.rounded"
_WIDENED: Final = "aten._to_copy.default"
#: Types in which arithmetic is coarse, each with those that hold all of its numbers, narrow before wide, and with all others.
_TYPES: Final = {
    dtype: (
        sorted((wide for wide in FLOAT_BITS if wide != dtype and holds(wide, dtype)), key=FLOAT_BITS.__getitem__),
        [other for other in FLOAT_BITS if other == dtype or not holds(other, dtype)],
    )
    for dtype in FLOAT_BITS
    if FLOAT_BITS[dtype] < FLOAT_BITS["float32"]
}
#: Operators of computing families that give numbers of their operands, such with another sign, or zeros.
_CHOOSING: Final = frozenset(
    (
        *("abs", "aminmax", "amax", "amin", "cummax", "cummin", "fmax", "fmin", "max", "maximum", "min", "minimum", "neg", "negative", "relu"),
        *("_unsafe_index", "embedding", "gather", "index", "index_copy", "index_select", "take", "take_along_dim", "value_selecting_reduction_backward"),
    )
)  # fmt: skip
#: Such with numbers that are written in the call, or whole ones, besides.
_EXACT: Final = _CHOOSING | frozenset(
    (
        *("ceil", "clamp", "clamp_max", "clamp_min", "clip", "fix", "floor", "hardtanh", "index_fill", "nll_loss", "nll_loss_nd"),
        *("relu6", "round", "scatter", "sgn", "sign", "threshold", "threshold_backward", "trunc"),
    )
)  # fmt: skip
_REDUCTIONS: Final = frozenset(("gg.all_reduce", "gg.reduce", "gg.reduce_scatter"))
_PRODUCTS: Final = frozenset(("mul", "multiply"))


@dataclass(frozen=True, slots=True)
class Rounding:
    """A result of a call that is computed in a narrower type than ``wide``, in which the specification has it; ``known`` where it has the rounded numbers too."""

    index: int
    wide: str
    known: bool


def narrowed(algebra: NormalForm, value: NormalValue, dtype: str) -> tuple[NormalValue, str, bool]:
    """What a rank computed in a type, rounded where the specification has it so; the wider type in which the specification has it otherwise, or an empty text, and whether it has both."""
    if dtype not in _TYPES or value.kind != "float":
        return value, "", False
    wide = algebra.only_wider(value, *_TYPES[dtype])
    if wide is None:
        return value, "", False
    coarse = unknown_cast(algebra, value, dtype)
    known = algebra.specifies(coarse, dtype)
    return (coarse if known else value), wide, known


def coarse_types(kinds: Iterable[TensorType]) -> tuple[str, ...]:
    """Of the types of a program's tensors those in which arithmetic is coarse, where there are others as well."""
    dtypes = {kind.dtype for kind in kinds}
    return tuple(sorted(dtypes & _TYPES.keys())) if dtypes & (FLOAT_BITS.keys() - _TYPES.keys()) else ()


def chooses(node: Node) -> bool:
    """Whether the numbers that a call gives are its operands', such with another sign, or zeros."""
    return _name(node) in _CHOOSING


def _name(node: Node) -> str:
    return node.op.split(".")[1].rstrip("_")


def computes_coarsely(
    algebra: NormalForm, node: Node, types: Mapping[Var, TensorType], values: Mapping[Var, NormalValue]
) -> bool:
    """Whether a call makes numbers of a coarse type that its operands need not have."""
    if all(types[out].dtype not in _TYPES for out in node.outs):
        return False
    name = _name(node)
    rule = find_rule(node.op)
    if name in _EXACT or (rule is not None and not rule.computes):
        return False
    return name not in _PRODUCTS or all(
        algebra.most_counted(values[each], 0) not in (0.0, 1.0) for each in node.operands()
    )


def adds_coarsely(node: Node, dtype: str) -> bool:
    """Whether a collective makes new numbers of a coarse type."""
    return (
        dtype in _TYPES
        and node.op in _REDUCTIONS
        and not {"max", "min"}.intersection(arg for arg in node.args if isinstance(arg, str))
    )


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
    return replace(capture, ranks=tuple(ranks))


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
        nodes.append(replace(node, op=_WIDENED, args=(arg,), kwargs={"dtype": DType(dtype)}, outs=(wide,)))
        return wide

    for index, node in enumerate(graph.nodes):
        found = roundings.get(index, ())
        outs, casts = list(node.outs), []
        for rounding in found:
            out = outs[rounding.index]
            wide = outs[rounding.index] = another(out, rounding.wide)
            casts.append(replace(node, op=ROUNDED, args=(wide, rounding.known), kwargs={}, outs=(out,), draw=None))
        if found and node.op in _REDUCTIONS:
            node = replace(node, args=(widened(node.args[0], node, found[0].wide), *node.args[1:]))
        nodes += [replace(node, outs=tuple(outs)) if casts else node, *casts]
    return replace(graph, nodes=tuple(nodes), types=types)
