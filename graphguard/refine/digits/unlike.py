"""Calls that differ between the ranks of a program: in where a slice begins, which element is selected, and where in a list one tensor stands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from graphguard.ir import Node, Var
from graphguard.ir.graph import Arg
from graphguard.ops import aten
from graphguard.refine.digits.held import Held, dim_of, side_by_side
from graphguard.refine.digits.moves import Numbers, coordinate, put, window
from graphguard.refine.digits.stacks import Stack
from graphguard.relations.algebra import Unsupported


def numbers_of(held: Held, each: Sequence[Node], at: int) -> Numbers:
    """The whole numbers that ranks have at a place of the arguments of a call."""
    numbers = [call.args[at] for call in each]
    if any(type(number) is not int for number in numbers):
        raise Unsupported("numbers that are not whole and differ between ranks")
    return Numbers.of(numbers, held.algebra.sizes)  # type: ignore[arg-type]


def _slice(held: Held, node: Node, each: Sequence[Node], differing: Sequence[int]) -> Stack:
    """``slice(x, dim, start, stop)`` from where it begins on each rank; as long on all."""
    v = held.get(node.args[0])  # type: ignore[arg-type]
    if not {2, 3}.issuperset(differing) or (len(node.args) > 4 and node.args[4] != 1) or node.kwargs:
        raise Unsupported("slices that differ in more than where they begin")
    dim = dim_of(node, 1, len(v.shape))
    extent, length = v.shape[dim], held.program.graph.types[node.outs[0]].shape[dim]
    assert isinstance(length, int)
    starts = []
    for call in each:
        start, stop = (_within(call.args[at], extent, whole) for at, whole in ((2, 0), (3, extent)))
        if stop - start != length:
            raise Unsupported("slices of different lengths")
        starts.append(start)
    return window(held.algebra, v, dim, Numbers.of(starts, held.algebra.sizes), length)


def _select(held: Held, node: Node, each: Sequence[Node], differing: Sequence[int]) -> Stack:
    """``select(x, dim, index)`` at each rank's own index."""
    v = held.get(node.args[0])  # type: ignore[arg-type]
    if list(differing) != [2] or node.kwargs:
        raise Unsupported("selections that differ in more than the index")
    dim = dim_of(node, 1, len(v.shape))
    numbers = numbers_of(held, each, 2)
    if int(numbers.table.min()) < 0:
        raise Unsupported("an index from the end that differs between ranks")
    found = window(held.algebra, v, dim, numbers, 1)
    return held.algebra.reshape(found, (*v.shape[:dim], *v.shape[dim + 1 :]))


def _slice_backward(held: Held, node: Node, each: Sequence[Node], differing: Sequence[int]) -> Stack:
    """``slice_backward(gradient, sizes, dim, start, stop, step)``: zeros with the gradient from where it begins on each rank."""
    v, sizes = held.get(node.args[0]), node.args[1]  # type: ignore[arg-type]
    if not {3, 4}.issuperset(differing) or len(node.args) < 6 or node.args[5] != 1 or not isinstance(sizes, tuple):
        raise Unsupported("gradients of slices that differ in more than where they begin")
    dim = dim_of(node, 2, len(v.shape))
    extent = sizes[dim]
    assert isinstance(extent, int)
    starts = []
    for call in each:
        start, stop = (_within(call.args[at], extent, whole) for at, whole in ((3, 0), (4, extent)))
        if stop - start != v.shape[dim]:
            raise Unsupported("slices of different lengths")
        starts.append(start)
    return put(held.algebra, v, dim, Numbers.of(starts, held.algebra.sizes), extent)


def _cat(held: Held, node: Node, each: Sequence[Node], differing: Sequence[int]) -> Stack:
    """A list with one tensor at a place that the rank decides, and others that are alike: at every place the one, where it is the rank's own, or the other."""
    a, names = held.algebra, [call.args[0] for call in each]
    if list(differing) != [0] or any(not isinstance(row, tuple) for row in names):
        raise Unsupported("lists that differ")
    rows: list[tuple[Arg, ...]] = [row for row in names if isinstance(row, tuple)]
    own = set(rows[0]).intersection(*rows[1:])
    mine = next(
        (
            var
            for var in rows[0]
            if var in own and len({row.index(var) for row in rows}) > 1 and all(row.count(var) == 1 for row in rows)
        ),
        None,
    )
    others = {var for row in rows for var in row if var != mine}
    if not isinstance(mine, Var) or any(not isinstance(var, Var) for var in others):
        raise Unsupported("lists that differ")
    x, rest = held.get(mine), [held.get(var) for var in others if isinstance(var, Var)]
    if any(value.shape != x.shape or value.kind != x.kind or not a.same(value, rest[0]) for value in rest):
        raise Unsupported("lists of different tensors")
    count, dim = len(rows[0]), dim_of(node, 1, len(x.shape))
    place = coordinate(a, Numbers.of([row.index(mine) for row in rows], a.sizes))
    hit = a.compare("eq", a.expand(a.reshape(place, (1,)), (count,)), a.iota(count))
    shape = (count, *x.shape)
    hit = a.expand(a.reshape(hit, (count, *(1 for _ in x.shape))), shape)
    one, other = (a.expand(a.reshape(value, (1, *x.shape)), shape) for value in (x, rest[0]))
    return side_by_side(a, a.where(hit, one, other), dim)


FOLLOWED: Final[dict[str, Callable[[Held, Node, Sequence[Node], Sequence[int]], Stack]]] = {
    aten.slice.Tensor: _slice,
    aten.select.int: _select,
    aten.slice_backward.default: _slice_backward,
    aten.cat.default: _cat,
}
"""What a call gives, by operator: from the first rank's call, all ranks', and the places of the arguments that differ."""


def _within(number: Arg, extent: int, otherwise: int) -> int:
    """An end of a slice as a position, as PyTorch takes it."""
    if number is None:
        return otherwise
    if type(number) is not int:
        raise Unsupported("an end of a slice that is not known")
    return min(max(number + extent if number < 0 else number, 0), extent)
