"""Arithmetic of the ranks in a narrower type than that in which the specification has the same numbers.

Float types stand for the reals, so arithmetic in bfloat16 is that in float32 until it is rounded.  What a rank computes in bfloat16 and the specification in float32 alone
is a rounding that the specification lacks, although no cast says so.  Where the specification has the rounded numbers as well (a fused operator computes in
float32 and rounds once) they are what the rank has, if its operands are the specification's too: else it may have rounded before.  All other such calls are
remembered: a program that has any is not proved, and :func:`exposed` writes them as what they are, arithmetic in the wide type and a rounding, so that what
proves, runs and explains casts does so with them.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from graphguard.ir import Capture, DType, Graph, Node, TensorType, Var
from graphguard.ir.graph import Arg
from graphguard.refine.outcome import Location
from graphguard.relations.normal_form import NormalForm
from graphguard.relations.precision import same_digits
from graphguard.relations.values import NormalValue
from graphguard.rules import find_rule
from graphguard.rules.casting import WITHOUT_ZERO, unknown_cast
from graphguard.rules.registry import FLOAT_BITS, holds

_Operands: TypeAlias = Sequence[tuple[NormalValue, str]]  # with their element types
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
#: So many members add once, and round once.
_ONE_ADDITION: Final = 2


@dataclass(frozen=True, slots=True)
class Rounding:
    """A result of a call that is computed in a narrower type than ``wide``, in which the specification has it.

    ``known``: the specification has the rounded numbers too.  ``doubted``: these, but the rank may have rounded more than once.
    """

    index: int
    wide: str
    known: bool
    doubted: bool = False

    @property
    def accepted(self) -> bool:
        """Whether the rank is seen to have what the specification has."""
        return self.known and not self.doubted


class Narrowing:
    """What the calls of a program round by arithmetic, found while they are evaluated.

    ``own`` gives the one object for equal values.
    """

    def __init__(self, algebra: NormalForm, own: Callable[[NormalValue], NormalValue]) -> None:
        self.roundings: dict[Location, tuple[Rounding, ...]] = {}
        self._algebra = algebra
        self._own = own
        self._types: tuple[str, ...] = ()
        self._found: dict[object, tuple[Rounding, ...]] = {}
        self._made: dict[NormalValue, tuple[bool, _Operands]] = {}  # of what, and whether exactly

    def begin(self, types: tuple[str, ...]) -> None:
        """Look at another program, among whose types there are these coarse ones beside others."""
        self._types, self.roundings = types, {}

    def again(self) -> Narrowing:
        """The same for other ranks of the program: what is known of calls stays known."""
        other = copy.copy(self)
        other.roundings = {}
        return other

    @property
    def coarse(self) -> bool:
        """Whether a rank computes something in a narrower type than the specification, and is not seen to have what that rounds."""
        return any(not rounding.accepted for found in self.roundings.values() for rounding in found)

    def note(self, where: Location, key: object) -> None:
        """A call that is known by ``key`` is made here."""
        if self._found and key in self._found:
            self.roundings[where] = self._found[key]

    def results(
        self,
        key: object,
        node: Node,
        types: Mapping[Var, TensorType],
        values: Mapping[Var, NormalValue],
        results: tuple[NormalValue, ...],
    ) -> tuple[NormalValue, ...]:
        """The results of a call, those of a rank rounded where the specification has them so."""
        if not self._types:
            return results
        if _name(node) in _CHOOSING:
            self._pass_on(node, types, values, results)
        if self._algebra.universe.specifying or all(types[out].dtype not in _TYPES for out in node.outs):
            return results
        operands = [(values[var], types[var].dtype) for var in node.operands()]
        computes = computes_coarsely(self._algebra, node, values)
        for value in results:
            self._made.setdefault(value, (not computes, operands))
        if not computes:
            return results
        return self._rounded(key, results, [types[out].dtype for out in node.outs], operands)

    def total(self, key: object, values: Sequence[NormalValue], dtype: str, members: int) -> tuple[NormalValue, ...]:
        """What a collective adds up of its members' tensors, or each of its members' a part of."""
        return self._rounded(key, values, [dtype] * len(values), once=members <= _ONE_ADDITION)

    def _pass_on(
        self,
        node: Node,
        types: Mapping[Var, TensorType],
        values: Mapping[Var, NormalValue],
        results: Sequence[NormalValue],
    ) -> None:
        """What is chosen among numbers of a coarse type is of that type, whatever it is stored in."""
        floats = [values[var] for var in node.operands() if values[var].kind == "float"]
        for dtype in self._types:
            if dtype == WITHOUT_ZERO or not floats or all(types[out].dtype == dtype for out in node.outs):
                continue
            if all(self._algebra.holds(value, dtype) for value in floats):
                for value in results:
                    self._algebra.hold(value, dtype)

    def _rounded(
        self,
        key: object,
        results: Sequence[NormalValue],
        dtypes: Sequence[str],
        operands: _Operands = (),
        once: bool = True,
    ) -> tuple[NormalValue, ...]:
        rounded = list(results)
        found: list[Rounding] = []
        for index, (value, dtype) in enumerate(zip(results, dtypes, strict=True)):
            if dtype not in _TYPES or value.kind != "float":
                continue
            wide = self._algebra.only_wider(value, *_TYPES[dtype])
            if wide is None or _is_multiple(value, dtype, operands):
                continue
            coarse = unknown_cast(self._algebra, value, dtype)
            known = self._algebra.specifies(coarse, dtype)
            if known:
                rounded[index] = self._own(coarse)
            found.append(Rounding(index, wide, known, doubted=known and not (once and self._specified(operands))))
        if found:
            self._found[key] = tuple(found)
        return tuple(rounded)

    def _specified(self, operands: _Operands, above: tuple[NormalValue, ...] = ()) -> bool:
        """Whether operands of coarse types are seen to be numbers that the specification has in them, or to be made of such without a rounding."""
        return all(
            self._algebra.specifies(value, dtype)
            or (
                value not in above
                and self._exact(value, dtype)
                and self._specified(self._made[value][1], (*above, value))
            )
            for value, dtype in operands
            if dtype in _TYPES and value.kind == "float"
        )

    def _exact(self, value: NormalValue, dtype: str) -> bool:
        """Whether a rank has made a value of others without a rounding."""
        exact, operands = self._made.get(value, (False, ()))
        return exact or _is_multiple(value, dtype, operands)


def _is_multiple(value: NormalValue, dtype: str, operands: _Operands) -> bool:
    """Whether a value has the numbers of an operand of the same type, multiplied exactly."""
    return any(dtype == other and same_digits(value, operand) for operand, other in operands)


def coarse_types(kinds: Iterable[TensorType]) -> tuple[str, ...]:
    """Of the types of a program's tensors those in which arithmetic is coarse, where there are others as well."""
    dtypes = {kind.dtype for kind in kinds}
    return tuple(sorted(dtypes & _TYPES.keys())) if dtypes & (FLOAT_BITS.keys() - _TYPES.keys()) else ()


def _name(node: Node) -> str:
    return node.op.split(".")[1].rstrip("_")


def computes_coarsely(algebra: NormalForm, node: Node, values: Mapping[Var, NormalValue]) -> bool:
    """Whether a call with results of a coarse type makes numbers that its operands need not have."""
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
