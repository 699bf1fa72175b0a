"""What ranks do on shards, known from what the specification did on the whole.

An operator that acts one by one over an index does on a range of it what it did on all of it.  So where every operand of a rank's call is seen to be the same range
of an operand of the specification's call (the same normal form, after slicing), the results are that range of the specification's results, and nothing is computed again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod
from typing import Any, Final, TypeAlias

from graphguard.ir import Node, TensorType, Var
from graphguard.ir.graph import Arg
from graphguard.refine.evaluation.batching import Batching, Dims, batching, is_batched
from graphguard.relations.algebra import Unsupported
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.kernels import Ref
from graphguard.relations.terms.values import NormalValue
from graphguard.relations.terms.windows import sliced

Start: TypeAlias = "int | None"  # where a range begins; None where all ranges look the same
Ranges: TypeAlias = dict[str, tuple[Start, int]]

_NOTHING: Final = Batching((), ())
_LIKE: Final = 8  # calls of the specification on operands that look alike which are tried


@dataclass(slots=True)
class _Call:
    """A call of the specification; ``indices`` are worked out when a rank makes one like it."""

    node: Node
    operands: tuple[NormalValue, ...]
    results: tuple[NormalValue, ...]
    indices: Batching | None = None

    def batching(self, elementwise: Collection[str]) -> Batching | None:
        """The indices over which it acts one by one."""
        if self.indices is None:
            shapes = [value.shape for value in self.operands]
            found = batching(self.node, shapes, [value.shape for value in self.results], elementwise)
            self.indices = _NOTHING if found is None or len(found.results) != len(self.results) else found
        return None if self.indices is _NOTHING else self.indices


class Shards:
    """The specification's calls that act one by one over some index.

    ``own`` gives the one object for equal values, ``elementwise`` names operators that the user declared to be.
    """

    def __init__(
        self, algebra: NormalForm, own: Callable[[NormalValue], NormalValue], elementwise: Collection[str] = ()
    ) -> None:
        self.algebra = algebra
        self.own = own
        self.elementwise = frozenset(elementwise)
        self._known: set[str] = set()
        self._calls: dict[object, deque[_Call]] = {}  # in turns: what a rank made last comes last
        self._starts: dict[tuple[NormalValue, NormalValue], tuple[Start, ...] | None] = {}

    def learn(
        self,
        node: Node,
        types: Mapping[Var, TensorType],
        values: Mapping[Var, NormalValue],
        results: tuple[NormalValue, ...],
    ) -> None:
        """Remember a call of the specification and its results."""
        if node.op not in self.elementwise and not is_batched(node.op):
            return
        operands = tuple([values[var] for var in node.operands()])
        if operands:
            self._known.add(node.op)
            self._calls.setdefault(_likeness(node, types, values), deque()).append(_Call(node, operands, results))

    def results(
        self, node: Node, types: Mapping[Var, TensorType], values: Mapping[Var, NormalValue]
    ) -> tuple[NormalValue, ...] | None:
        """The results of a rank's call as parts of the results of one of the specification's; None where it is on no parts of its operands."""
        found = self._calls.get(_likeness(node, types, values)) if node.op in self._known else None
        if found is None:
            return None
        operands = [values[var] for var in node.operands()]
        for turns, call in enumerate(tuple(islice(found, _LIKE)), 1):
            try:
                indices = call.batching(self.elementwise)
                ranges = None if indices is None else self._ranges(call.operands, indices, operands)
                if indices is None or ranges is None:
                    continue
                pairs = zip(call.results, indices.results, strict=True)
                parts = tuple([self._part(v, dims, ranges) for v, dims in pairs])
            except Unsupported:
                continue  # a part that cannot be cut out is computed
            if all(part.shape == types[out].shape for part, out in zip(parts, node.outs, strict=True)):
                found.rotate(-turns)
                return parts
        return None

    def _ranges(
        self, wholes: Sequence[NormalValue], indices: Batching, operands: Sequence[NormalValue]
    ) -> Ranges | None:
        """The ranges of the indices of which all operands are parts of the specification's."""
        if not _may_be_parts(wholes, indices, operands):
            return None
        ranges: Ranges = {}
        for whole, part, dims in zip(wholes, operands, indices.operands, strict=True):
            starts = self.starts(whole, part)
            if starts is None:
                return None
            for dim, start, size in zip(dims, starts, part.shape, strict=True):
                if dim is None:
                    continue
                index, multiple = dim
                if start is not None and start % multiple:
                    return None
                mine = (None if start is None else start // multiple, size // multiple)
                known = ranges.get(index)
                if known is None or (known[0] is None and known[1] == mine[1]):
                    ranges[index] = mine
                elif known[1] != mine[1] or mine[0] not in (None, known[0]):
                    return None
        return ranges

    def part(self, value: NormalValue, starts: Sequence[Start], shape: tuple[int, ...]) -> NormalValue:
        """The part of a value that begins there."""
        part = value
        for dim, (start, size) in enumerate(zip(starts, shape, strict=True)):
            if size != part.shape[dim]:
                part = self.algebra.slice(part, dim, start or 0, (start or 0) + size)
        part = self.own(part)
        self._starts[value, part] = tuple(starts)
        return part

    def _part(self, value: NormalValue, dims: Dims, ranges: Ranges) -> NormalValue:
        part = value
        starts: list[Start] = [0] * len(dims)
        for dim, place in enumerate(dims):
            if place is not None and place[0] in ranges:
                start, size = ranges[place[0]]
                low = starts[dim] = (start or 0) * place[1]
                if size * place[1] != part.shape[dim]:
                    part = self.algebra.slice(part, dim, low, low + size * place[1])
        part = self.own(part)
        self._starts[value, part] = tuple(starts)
        return part

    def starts(self, whole: NormalValue, part: NormalValue) -> tuple[Start, ...] | None:
        """Where a value begins in another, of which it is a part along some dims; None where it is none."""
        if whole is part:
            return (0,) * len(whole.shape)
        key = (whole, part)
        if key not in self._starts:
            self._starts[key] = self._found(whole, part)
        return self._starts[key]

    def _found(self, whole: NormalValue, part: NormalValue) -> tuple[Start, ...] | None:
        if len(whole.shape) != len(part.shape) or any(
            n > full for n, full in zip(part.shape, whole.shape, strict=True)
        ):
            return None
        cut = [dim for dim, size in enumerate(whole.shape) if size != part.shape[dim]]
        seen = _start_seen(whole, part, cut[0]) if len(cut) == 1 else None
        if seen is not None:
            return (*(0,) * cut[0], seen[0], *(0,) * (len(whole.shape) - cut[0] - 1))
        starts = _guess(whole, part, cut)
        if starts is None or any((starts[dim] or 0) + part.shape[dim] > whole.shape[dim] for dim in cut):
            return None
        if _is_seen(whole, part, cut):
            return starts
        if _is_another(whole, part, cut, starts):
            return None
        made = whole
        for dim in cut:
            low = starts[dim] or 0
            made = self.algebra.slice(made, dim, low, low + part.shape[dim])
        return starts if made.key() == part.key() else None


def _may_be_parts(wholes: Sequence[NormalValue], indices: Batching, operands: Sequence[NormalValue]) -> bool:
    """Whether the operands have the extents of parts: what an operator acts on at once is whole."""
    for whole, part, dims in zip(wholes, operands, indices.operands, strict=True):
        if len(whole.shape) != len(part.shape):
            return False
        for dim, size, extent in zip(dims, part.shape, whole.shape, strict=True):
            if size != extent if dim is None else size % dim[1]:
                return False
    return True


def _start_seen(whole: NormalValue, part: NormalValue, dim: int) -> tuple[Start] | None:
    """Where a part begins along the one dim along which it is shorter, where all terms count that by one digit; None where that does not show."""
    extent, size = whole.shape[dim], part.shape[dim]
    if len(whole.pieces) != 1 or len(part.pieces) != 1:
        return None
    ((box, terms),), ((other, others),) = whole.pieces, part.pieces
    if len(box) != len(whole.shape) or len(other) != len(box) or len(terms) != len(others):
        return None
    start: Start = None
    for (factor, mine), (its_factor, its) in zip(terms, others, strict=True):
        digits = mine[2][dim]
        if mine[0] is not its[0] or factor != its_factor or mine[3] != its[3] or len(digits) != 1:
            return None
        axis, stride, _ = digits[0]
        fresh = ((axis, stride, size),) if size != 1 else ()
        if its[2] != (*mine[2][:dim], fresh, *mine[2][dim + 1 :]):
            return None
        if axis < 0 or not stride:
            if mine[1] != its[1]:
                return None
            continue
        begin, rest = divmod(its[1][axis] - mine[1][axis], stride)
        if rest or (start is not None and start != begin) or not 0 <= begin <= extent - size:
            return None
        if its[1] != (*mine[1][:axis], its[1][axis], *mine[1][axis + 1 :]):
            return None
        start = begin
    return (start,)


def _guess(whole: NormalValue, part: NormalValue, cut: list[int]) -> tuple[Start, ...] | None:
    """Where a part must begin along the dims in ``cut`` if it is one, by the first term that moves along each of them."""
    starts: list[Start] = [0] * len(whole.shape)
    rank = len(whole.shape)
    if len(whole.pieces) != len(part.pieces):
        return None
    for dim in cut:
        starts[dim] = None
    for (box, terms), (other, others) in zip(whole.pieces, part.pieces, strict=True):
        if len(box) != rank or len(other) != rank or len(terms) != len(others):
            return None
        if any(box[dim] != (0, whole.shape[dim]) or other[dim] != (0, part.shape[dim]) for dim in cut):
            return None
        for (factor, mine), (its_factor, its) in zip(terms, others, strict=True):
            if mine[0] is not its[0] or factor != its_factor or mine[3] != its[3] or not _solve(mine, its, cut, starts):
                return None
    return tuple(starts)


def _is_seen(whole: NormalValue, part: NormalValue, cut: list[int]) -> bool:
    """Whether terms that begin where they must are those of the part by their digits alone: none but the dims in ``cut`` differ, and these by an extent."""
    for (box, terms), (other, others) in zip(whole.pieces, part.pieces, strict=True):
        if any(span != other[dim] for dim, span in enumerate(box) if dim not in cut):
            return False
        for (_, mine), (_, its) in zip(terms, others, strict=True):
            for dim, digits in enumerate(mine[2]):
                if dim in cut:
                    size = part.shape[dim]
                    if len(digits) != 1 or its[2][dim] != (((*digits[0][:2], size),) if size != 1 else ()):
                        return False
                elif digits != its[2][dim]:
                    return False
    return True


def _is_another(whole: NormalValue, part: NormalValue, cut: list[int], starts: tuple[Start, ...]) -> bool:
    """Whether the first term shows that a part of one piece is not what a slice makes of the whole; only of terms that a slice leaves as they are."""
    terms, others = whole.pieces[0][1], part.pieces[0][1]
    if len(cut) != 1 or len(part.pieces) != 1 or not terms or any(ref[0].placed for _, ref in terms):
        return False
    low = starts[cut[0]] or 0
    found = sliced(terms[0][1], cut[0], low, low + part.shape[cut[0]])
    return len(found) != 1 or found[0][2] != others[0][1]


def _solve(whole: Ref, part: Ref, cut: list[int], starts: list[Start]) -> bool:
    """Where the dims in ``cut`` begin, as one term says; whether it can be so at all."""
    left = [b - a for a, b in zip(whole[1], part[1], strict=True)]
    digits = [
        (stride, axis, size, dim, place)
        for dim in cut
        for place, (axis, stride, size) in enumerate(whole[2][dim])
        if axis >= 0
    ]
    digits.sort(reverse=True)
    found: dict[int, int] = {}
    for stride, axis, size, dim, place in digits:
        if stride <= 0 or left[axis] < 0:
            return False
        steps = min(left[axis] // stride, size - 1)
        left[axis] -= steps * stride
        inner = prod(below for _, _, below in whole[2][dim][place + 1 :])
        found[dim] = found.get(dim, 0) + steps * inner
    if any(left):
        return False
    for dim, start in found.items():
        if starts[dim] not in (None, start):
            return False
        starts[dim] = start
    return True


def _likeness(node: Node, types: Mapping[Var, TensorType], values: Mapping[Var, NormalValue]) -> object:
    """What a call has in common with the same call on parts of its operands."""
    row: list[Any] = [node.op]
    row += [_argument(arg, types, values) for arg in node.args]
    for name, arg in node.kwargs.items():
        row += [name, _argument(arg, types, values)]
    row += [types[out].dtype for out in node.outs]
    return tuple(row)


def _argument(arg: Arg, types: Mapping[Var, TensorType], values: Mapping[Var, NormalValue]) -> object:
    if isinstance(arg, Var):
        terms = [(c, ref[0].id, ref[3]) for _, terms in values[arg].pieces for c, ref in terms]
        return (types[arg].dtype, tuple(terms))
    if isinstance(arg, tuple):
        for item in arg:
            if item.__class__ is not int:
                return tuple([_argument(item, types, values) for item in arg])
        return arg
    return (arg.__class__, arg)
