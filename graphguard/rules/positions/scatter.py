"""Gather, scatter, and selections and additions along one dim.

A position outside the extent is an error of the program, so the one-hot factors are ``checked``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from graphguard.relations.algebra import Algebra, Unsupported, V
from graphguard.rules.basis.arithmetic import (
    LETTERS,
    Letters,
    Number,
    chosen,
    compared,
    dim_of,
    expanded,
    full,
    is_number,
    kept,
    plus,
    times,
)
from graphguard.rules.basis.casting import convert
from graphguard.rules.basis.index_maps import counted_forward, cut, in_few_pieces, put, take
from graphguard.rules.basis.merged_choices import found_again
from graphguard.rules.basis.merged_places import largest_at
from graphguard.rules.basis.registry import rule
from graphguard.rules.positions.layout import replaced


def _cut_to(a: Algebra[V], v: V, shape: Sequence[int], but: int) -> V:
    """v with every dim but one cut to the extents of a shape."""
    for dim, extent in enumerate(shape):
        if dim != but:
            v = cut(a, v, dim, 0, extent)
    return v


def _contracted(a: Algebra[V], v: V, index: V, dim: int, scatter: bool, extent: int) -> V:
    """sum_v [index = v] x[v] (gather), or sum_j [index[j] = v] x[j] (scatter), along dim."""
    letters = LETTERS[: len(index.shape)]
    target = letters[:dim] + "z" + letters[dim + 1 :]
    hot = a.one_hot(index, extent, checked=True)
    source, out = (letters, target) if scatter else (target, letters)
    result = a.contract([(hot, letters + "z"), (convert(a, v, "float"), source)], out)
    return convert(a, result, v.kind)


def _line_of(a: Algebra[V], index: V, dim: int) -> np.ndarray | None:
    """Known positions along dim that are the same on every line, else None."""
    known = a.known(index)
    if known is None or not known.size or not in_few_pieces(np.moveaxis(known, dim, -1)[(0,) * (known.ndim - 1)]):
        return None
    lines = np.moveaxis(known, dim, -1).reshape(-1, known.shape[dim])
    return lines[0] if (lines == lines[0]).all() else None


@rule("aten.gather.default")
def gather(a: Algebra[V], self: V, dim: int, index: V, *, sparse_grad: bool = False) -> V:
    """out[..., j, ...] = self[..., index[..., j, ...], ...]"""
    if not self.shape:
        return expanded(a, self, index.shape)
    dim = dim_of(dim, len(self.shape))
    again = found_again(a, self, dim, index)
    if again is not None:
        return again
    source = _cut_to(a, self, index.shape, dim)
    line = _line_of(a, index, dim)
    if line is not None:
        return take(a, source, dim, line)
    if index.shape[dim] == 1 and source.kind != "bool":
        largest = largest_at(a, source, dim, a.reshape(index, kept(index.shape, [dim], False)))
        if largest is not None:
            return a.reshape(largest, index.shape)
    try:
        return _contracted(a, source, index, dim, False, self.shape[dim])
    except Unsupported:  # minus infinity, perhaps, in columns that no index names, as those of a padded vocabulary are
        read = _columns_read(a, index, self.shape[dim])
        if read == self.shape[dim]:
            raise
        return _contracted(a, cut(a, source, dim, 0, read), index, dim, False, read)


def _columns_read(a: Algebra[V], index: V, extent: int) -> int:
    """How many columns there are up to the last that an index is seen to be able to name."""
    low, high = 0, extent
    while low < high:
        middle = (low + high) // 2
        below = a.known(compared(a, "lt", index, middle))
        if below is not None and below.all():
            high = middle
        else:
            low = middle + 1
    return high


@rule("aten.take_along_dim.default")
def take_along_dim(a: Algebra[V], self: V, indices: V, dim: int | None = None) -> V:
    """out[..., j, ...] = self[..., indices[..., j, ...], ...], the other dims broadcast"""
    if dim is None:
        raise Unsupported("take_along_dim without a dim")
    dim = dim_of(dim, len(self.shape))
    other = [max(x, y) for x, y in zip(self.shape, indices.shape, strict=True)]
    source = expanded(a, self, (*other[:dim], self.shape[dim], *other[dim + 1 :]))
    return gather(a, source, dim, expanded(a, indices, (*other[:dim], indices.shape[dim], *other[dim + 1 :])))


@rule("aten.scatter_add.default")
def scatter_add(a: Algebra[V], self: V, dim: int, index: V, src: V) -> V:
    """out = self + sum_j [index[..., j, ...] = v] src[..., j, ...] at [..., v, ...]"""
    dim = dim_of(dim, len(self.shape))
    source = cut(a, _cut_to(a, src, index.shape, dim), dim, 0, index.shape[dim])
    return _added(a, self, dim, index, source)


def _added(a: Algebra[V], self: V, dim: int, index: V, source: V) -> V:
    region = _cut_to(a, self, index.shape, dim)
    line = _line_of(a, index, dim)
    if line is not None and np.unique(line).size == line.size:
        region = put(a, region, dim, line, plus(a, take(a, region, dim, line), source))
    else:
        region = plus(a, region, _contracted(a, convert(a, source, self.kind), index, dim, True, self.shape[dim]))
    return _region_back(a, self, region)


def _region_back(a: Algebra[V], self: V, region: V) -> V:
    """self with its corner replaced by the region, dim by dim."""
    for dim, extent in enumerate(region.shape):
        if extent == self.shape[dim]:
            continue
        around = self
        for done in range(dim + 1, len(region.shape)):
            around = cut(a, around, done, 0, region.shape[done])
        region = replaced(a, around, region, dim, 0, extent)
    return region


@rule("aten.scatter.src")
def scatter_src(a: Algebra[V], self: V, dim: int, index: V, src: V) -> V:
    """self with [..., index[..., j, ...], ...] = src[..., j, ...]; which of several j that name one position writes it stays closed"""
    dim = dim_of(dim, len(self.shape))
    source = cut(a, _cut_to(a, src, index.shape, dim), dim, 0, index.shape[dim])
    line = _line_of(a, index, dim)
    if line is not None:
        region = _cut_to(a, self, index.shape, dim)
        return _region_back(a, self, put(a, region, dim, line, convert(a, source, self.kind)))
    return _written(a, self, dim, index, convert(a, source, self.kind))


def _written(a: Algebra[V], self: V, dim: int, index: V, source: V) -> V:
    """0 where anything is written, plus what the writers put there: linear in self and in source."""
    region = _cut_to(a, self, index.shape, dim)
    letters = LETTERS[: len(index.shape)]
    kept = chosen(a, hit(a, index, dim, self.shape[dim]), full(a, region.shape, 0, region.kind), region)
    out = letters[:dim] + "z" + letters[dim + 1 :]
    placed = a.contract(
        [(writers(a, index, dim, self.shape[dim]), letters + "z"), (convert(a, source, "float"), letters)], out
    )
    return _region_back(a, self, plus(a, kept, convert(a, placed, self.kind)))


def hit(a: Algebra[V], index: V, dim: int, extent: int) -> V:
    """Whether position v is named on its line: shape of index with ``extent`` along dim."""
    hits = _contracted(a, a.full(index.shape, Fraction(1), "float"), index, dim, True, extent)
    if not _distinct(a, index, dim):
        return compared(a, "gt", hits, 0)
    # as many positions as there are, none twice: all are named
    return full(a, hits.shape, True, "bool") if index.shape[dim] == extent else a.truth(hits)


def _distinct(a: Algebra[V], index: V, dim: int) -> bool:
    """Whether no position comes twice on a line."""
    return index.shape[dim] == 1 or a.distinct(index, dim)


def writers(a: Algebra[V], index: V, dim: int, extent: int) -> V:
    """1 at (..., j, ..., v) where j is the one that writes v, else 0: of lines on which a position may come twice, a closed function."""
    if _distinct(a, index, dim):
        return a.one_hot(index, extent, checked=True)
    letters = LETTERS[: len(index.shape)]
    line = letters[:dim] + "A" + letters[dim + 1 :]
    return a.opaque(
        "scatter.writers", (extent,), [(index, line)], line.replace("A", "B") + "C", (*index.shape, extent), "float"
    )


@rule("aten.scatter.value")
def scatter_value(a: Algebra[V], self: V, dim: int, index: V, value: Number) -> V:
    """self with [..., index[..., j, ...], ...] = value"""
    dim = dim_of(dim, len(self.shape))
    filled = full(a, index.shape, value, self.kind)
    in_one_place = index.shape[dim] == 1 and math.isfinite(value)  # infinity is chosen: nothing is multiplied by it
    if _line_of(a, index, dim) is not None or in_one_place:
        return scatter_src(a, self, dim, index, filled)
    region = _cut_to(a, self, index.shape, dim)
    named = hit(a, index, dim, self.shape[dim])
    return _region_back(a, self, chosen(a, named, full(a, region.shape, value, self.kind), region))


@rule("aten.scatter.reduce", "aten.scatter_reduce.two")
def scatter_reduce(a: Algebra[V], self: V, dim: int, index: V, src: V, reduce: str, *, include_self: bool = True) -> V:
    """As scatter_add for sums; other reductions are closed, batched over the other dims where all tensors have them whole"""
    dim = dim_of(dim, len(self.shape))
    if reduce not in ("sum", "add"):
        return _reduced_at(a, self, dim, index, src, (reduce, include_self))
    if include_self:
        return scatter_add(a, self, dim, index, src)
    ones, zeros = full(a, index.shape, 1.0, "float"), full(a, self.shape, 0.0, "float")
    hits = scatter_add(a, zeros, dim, index, ones)
    base = chosen(a, compared(a, "gt", hits, 0), 0, self)
    return scatter_add(a, convert(a, base, self.kind), dim, index, src)


def _reduced_at(a: Algebra[V], self: V, dim: int, index: V, src: V, attributes: tuple[object, ...]) -> V:
    """A closed function of every line along a dim; where the index covers less than all lines, of all that is there."""
    rank = len(self.shape)
    if not rank:
        raise Unsupported("a scatter into one number")
    whole = all(index.shape[d] == self.shape[d] == src.shape[d] for d in range(rank) if d != dim)
    letters = LETTERS[:rank]
    lines = [letters[:dim] + core + letters[dim + 1 :] for core in "XYZW"] if whole else _apart(rank)
    operands = list(zip((self, index, src), lines[:3], strict=True))
    attributes = attributes if whole else (*attributes, dim)
    return a.opaque("scatter_reduce", attributes, operands, lines[3], self.shape, self.kind)


def _apart(rank: int) -> list[str]:
    """Letters of whole dims for four tensors."""
    letters = Letters()
    return [letters.take(rank).upper() for _ in range(4)]


@rule("aten.index_reduce.default")
def index_reduce(a: Algebra[V], self: V, dim: int, index: V, source: V, reduce: str, *, include_self: bool = True) -> V:
    """The products, means, largest or smallest of the rows of source that index names: closed, batched over the other dims"""
    dim = dim_of(dim, len(self.shape))
    letters = LETTERS[: len(self.shape)]
    lines = [letters[:dim] + core + letters[dim + 1 :] for core in "XYZ"]
    operands = [(self, lines[0]), (index, "Y"), (convert(a, source, self.kind), lines[1])]
    return a.opaque("index_reduce", (dim, reduce, include_self), operands, lines[2], self.shape, self.kind)


@rule("aten.index_select.default")
def index_select(a: Algebra[V], self: V, dim: int, index: V) -> V:
    """out[..., j, ...] = self[..., index[j], ...]"""
    if not self.shape:
        return self
    dim = dim_of(dim, len(self.shape))
    known = a.known(index)
    if known is not None and in_few_pieces(known):
        return take(a, self, dim, known.reshape(-1))
    index = a.reshape(index, (index.shape[0] if index.shape else 1,))
    order = [dim, *(d for d in range(len(self.shape)) if d != dim)]
    rows = a.lookup(a.permute(self, order), index)
    return a.permute(rows, [order.index(d) for d in range(len(order))])


@rule("aten.index_add.default")
def index_add(a: Algebra[V], self: V, dim: int, index: V, source: V, *, alpha: Number = 1) -> V:
    """out[..., v, ...] = self[..., v, ...] + alpha sum_j [index[j] = v] source[..., j, ...]"""
    dim = dim_of(dim, max(len(self.shape), 1))
    source = convert(a, source if alpha == 1 else times(a, source, alpha), self.kind)
    known = a.known(index)
    if known is not None and in_few_pieces(known) and np.unique(known).size == known.size:
        positions = known.reshape(-1)
        return put(a, self, dim, positions, plus(a, take(a, self, dim, positions), source))
    letters = LETTERS[: len(self.shape)]
    hot = a.one_hot(index, self.shape[dim], checked=True)
    out = letters[:dim] + "z" + letters[dim + 1 :]
    update = a.contract([(hot, letters[dim] + "z"), (convert(a, source, "float"), letters)], out)
    return plus(a, self, convert(a, update, self.kind))


@rule("aten.index_copy.default")
def index_copy(a: Algebra[V], self: V, dim: int, index: V, source: V) -> V:
    """out[..., index[j], ...] = source[..., j, ...]; which of several j that name one position writes it stays closed"""
    dim, known = dim_of(dim, len(self.shape)), a.known(index)
    if known is not None:
        return put(a, self, dim, known.reshape(-1), convert(a, source, self.kind))
    if not self.shape:
        raise Unsupported("index_copy into one number")
    extent, positions = self.shape[dim], a.reshape(index, (source.shape[dim],))
    named = a.reshape(hit(a, positions, 0, extent), (extent,) + (1,) * (len(self.shape) - dim - 1))
    letters = LETTERS[: len(self.shape)]
    rows = [(writers(a, positions, 0, extent), letters[dim] + "z"), (convert(a, source, "float"), letters)]
    placed = a.contract(rows, letters[:dim] + "z" + letters[dim + 1 :])
    return plus(a, chosen(a, named, full(a, self.shape, 0, self.kind), self), convert(a, placed, self.kind))


@rule("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor")
def index_fill(a: Algebra[V], self: V, dim: int, index: V, value: Any) -> V:
    """out[..., index[j], ...] = value"""
    dim = dim_of(dim, len(self.shape))
    number = value if is_number(value) else convert(a, value, self.kind)
    positions = a.reshape(index, (index.shape[0] if index.shape else 1,))
    hits = a.sum(a.one_hot(positions, self.shape[dim], checked=True), [0])
    mask = compared(a, "gt", a.reshape(hits, (self.shape[dim],) + (1,) * (len(self.shape) - dim - 1)), 0)
    return chosen(a, mask, number, self)


@rule("aten.take.default")
def take_flat(a: Algebra[V], self: V, index: V) -> V:
    """out[...] = the element of the flattening of self at index[...]"""
    flat = a.reshape(self, (int(np.prod(self.shape, dtype=np.int64)),))
    known = a.known(index)
    if known is None or not in_few_pieces(known):
        return a.lookup(flat, counted_forward(a, index, flat.shape[0]))
    return a.reshape(take(a, flat, 0, known.reshape(-1)), index.shape)


@rule("aten.one_hot.default")
def one_hot(a: Algebra[V], self: V, num_classes: int = -1) -> V:
    """out[..., v] = [self[...] = v]; PyTorch raises an error for what is known to lie outside"""
    if num_classes < 0:
        raise Unsupported("one_hot with a number of classes that depends on the data")
    return a.number(a.one_hot(self, num_classes, checked="known"), "int")


@rule("aten.value_selecting_reduction_backward.default")
def value_selecting_reduction_backward(
    a: Algebra[V], grad: V, dim: int, indices: V, sizes: Sequence[int], keepdim: bool
) -> V:
    """Zeros of sizes with grad at the selected positions"""
    zeros = a.full(tuple(sizes), Fraction(0), grad.kind)
    if not keepdim and sizes:
        dim = dim_of(dim, len(sizes))
        shape = (*grad.shape[:dim], 1, *grad.shape[dim:])
        grad, indices = a.reshape(grad, shape), a.reshape(indices, shape)
    return scatter_src(a, zeros, dim, indices, grad)
