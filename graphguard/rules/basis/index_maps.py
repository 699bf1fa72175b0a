"""Index maps that are known when the program is traced, as slices, repetitions and joins."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphguard.relations.algebra import Algebra, Unsupported, V
from graphguard.rules.basis.arithmetic import chosen, compared, plus

Indices = NDArray[np.int64]
MOST_PIECES: Final = 256
MOST_INDICES: Final = 1 << 20


def cut(a: Algebra[V], v: V, dim: int, start: int, stop: int, step: int = 1) -> V:
    """A slice; v itself where that is all of it."""
    if start == 0 and stop == v.shape[dim] and step == 1:
        return v
    return a.slice(v, dim, start, stop, step)


def join(a: Algebra[V], vs: Sequence[V], dim: int) -> V:
    """A concatenation; the value itself where there is one."""
    return vs[0] if len(vs) == 1 else a.concat(vs, dim)


def zeros_like(a: Algebra[V], v: V, dim: int, extent: int) -> V:
    """Zeros of v's shape and kind but for one extent."""
    shape = (*v.shape[:dim], extent, *v.shape[dim + 1 :])
    return a.full(shape, Fraction(0), v.kind)


def moved(a: Algebra[V], v: V, source: int, target: int) -> V:
    """v with one dim moved to another place."""
    if source == target:
        return v
    order = [i for i in range(len(v.shape)) if i != source]
    order.insert(target, source)
    return a.permute(v, order)


def take(a: Algebra[V], v: V, dim: int, indices: Indices) -> V:
    """The elements of v at known positions along a dim."""
    extent = v.shape[dim]
    indices = _wrapped(indices, extent)
    if indices.size == 0:
        return a.slice(v, dim, 0, 0)
    step = _step(indices)
    if step is not None:
        return _run(a, v, dim, int(indices[0]), step, indices.size)
    period = _period(indices)
    if period is not None:
        return _tiled(a, take(a, v, dim, indices[:period]), dim, indices.size // period)
    return join(a, [_run(a, v, dim, first, step, count) for first, step, count in runs(indices)], dim)


def put(a: Algebra[V], v: V, dim: int, indices: Indices, source: V) -> V:
    """v with the elements at known positions along a dim replaced; a position named twice keeps the last one."""
    extent = v.shape[dim]
    origin = np.arange(extent, dtype=np.int64)
    origin[_wrapped(indices, extent)] = extent + np.arange(indices.size)
    return take(a, a.concat([v, source], dim), dim, origin)


def in_few_pieces(indices: Indices) -> bool:
    """Whether :func:`take` writes known positions as a small number of slices."""
    flat = indices.reshape(-1)
    if flat.size <= MOST_PIECES or _step(flat) is not None:
        return True
    if (period := _period(flat)) is not None and period <= MOST_PIECES:
        return True
    return int(np.count_nonzero(np.diff(flat, 2))) <= MOST_PIECES


def runs(indices: Indices) -> Iterator[tuple[int, int, int]]:
    """The positions as arithmetic progressions (first, step, count), taken greedily; raises ``Unsupported`` where there are too many."""
    steps = np.diff(indices)
    position, pieces = 0, 0
    changes = np.append(np.flatnonzero(np.diff(steps) != 0) + 1, steps.size)
    while position < indices.size:
        pieces += 1
        if pieces > MOST_PIECES:
            raise Unsupported(f"a known index of more than {MOST_PIECES} separate pieces")
        if position == indices.size - 1:
            yield int(indices[position]), 1, 1
            return
        end = int(changes[np.searchsorted(changes, position, side="right")])
        last = int(steps[position])
        # a lone jump between two runs belongs to neither of them
        if end == position + 1 and end < steps.size and abs(last) > 1:
            yield int(indices[position]), 1, 1
            position += 1
            continue
        yield int(indices[position]), last, end - position + 1
        position = end + 1


def _run(a: Algebra[V], v: V, dim: int, first: int, step: int, count: int) -> V:
    if step == 0:
        one = a.slice(v, dim, first, first + 1)
        return a.expand(one, (*v.shape[:dim], count, *v.shape[dim + 1 :]))
    low = first if step > 0 else first + step * (count - 1)
    piece = cut(a, v, dim, low, low + abs(step) * (count - 1) + 1, abs(step))
    return piece if step > 0 or count == 1 else a.flip(piece, dim)


def _tiled(a: Algebra[V], v: V, dim: int, times: int) -> V:
    shape = v.shape
    wide = a.reshape(v, (*shape[:dim], 1, *shape[dim:]))
    wide = a.expand(wide, (*shape[:dim], times, *shape[dim:]))
    return a.reshape(wide, (*shape[:dim], times * shape[dim], *shape[dim + 1 :]))


def _step(indices: Indices) -> int | None:
    """How far each index is from the one before where all are as far, as nearly all known positions are; None of others."""
    if indices.size < 2:
        return 1
    step = int(indices[1]) - int(indices[0])
    return step if bool((indices[1:] - indices[:-1] == step).all()) else None


def _period(indices: Indices) -> int | None:
    """The length of the shortest sequence that the indices repeat at least twice, if that is longer than one."""
    again = np.flatnonzero(indices[1:] == indices[0]) + 1
    if not again.size or again[0] < 2 or indices.size % again[0]:
        return None
    period = int(again[0])
    return period if (indices.reshape(-1, period) == indices[:period]).all() else None


def _wrapped(indices: Indices, extent: int) -> Indices:
    flat = from_the_front(indices, extent).reshape(-1)
    if flat.size and not (flat.min() >= 0 and flat.max() < extent):
        raise Unsupported(f"an index outside a dim of extent {extent}")
    return flat


def from_the_front(indices: NDArray[Any], extent: int) -> Indices:
    """Positions in a dim, those below zero counted from its end."""
    if indices.size and indices.min() < 0:
        indices = np.where(indices < 0, indices + extent, indices)
    return indices.astype(np.int64, copy=False)


def counted_forward(a: Algebra[V], index: V, extent: int) -> V:
    """Positions that the data decides, those below zero counted from the end."""
    if not a.may_count_back(index):
        return index
    return chosen(a, compared(a, "lt", index, 0), plus(a, index, extent), index)


def strided(a: Algebra[V], flat: V, size: Sequence[int], stride: Sequence[int], offset: int) -> V:
    """out[i, j, ...] = flat[offset + i stride[0] + j stride[1] + ...]."""
    if 0 in size:
        return a.full(tuple(size), Fraction(0), flat.kind)
    order = _nested(size, stride)
    if order is None or not _fits(size, stride, offset, order):
        positions = _positions(size, stride, offset)
        return a.reshape(take(a, flat, 0, positions.reshape(-1)), tuple(size))
    result = _strided_in(a, flat, [(size[i], stride[i]) for i in order], offset)
    back = [order.index(i) for i in range(len(size)) if i in order]
    result = a.permute(result, back) if back != sorted(back) else result
    shape = tuple(n if i in order else 1 for i, n in enumerate(size))
    result = a.reshape(result, shape)
    return result if shape == tuple(size) else a.expand(result, tuple(size))


def strided_scatter(a: Algebra[V], flat: V, source: V, stride: Sequence[int], offset: int) -> V:
    """flat with the elements that :func:`strided` reads replaced by source."""
    size = source.shape
    if 0 in size:
        return flat
    order = _nested(size, stride)
    if any(n > 1 and s == 0 for n, s in zip(size, stride, strict=True)):
        raise Unsupported("as_strided_scatter onto places that overlap")
    if order is None or not _fits(size, stride, offset, order):
        return put(a, flat, 0, _positions(size, stride, offset).reshape(-1), a.reshape(source, (math.prod(size),)))
    rest = [i for i in range(len(size)) if i not in order]
    source = a.permute(source, [*rest, *order])
    source = a.reshape(source, tuple(size[i] for i in order))
    return _strided_out(a, flat, source, [(size[i], stride[i]) for i in order], offset)


def _nested(size: Sequence[int], stride: Sequence[int]) -> list[int] | None:
    """Dims that move, the largest stride first, where each stride spans all that the smaller ones reach."""
    order = sorted((i for i, n in enumerate(size) if n > 1 and stride[i] != 0), key=lambda i: -stride[i])
    for outer, inner in pairwise(order):
        if stride[outer] < stride[inner] * (size[inner] - 1) + 1:
            return None
    return order


def _fits(size: Sequence[int], stride: Sequence[int], offset: int, order: list[int]) -> bool:
    """Whether, level by level, the rows that a stride cuts hold all that the smaller strides reach."""
    for place, i in enumerate(order):
        reach = sum(stride[j] * (size[j] - 1) for j in order[place + 1 :]) + 1
        offset %= stride[i]
        if offset + reach > stride[i]:
            return False
    return True


def _strided_in(a: Algebra[V], v: V, levels: list[tuple[int, int]], offset: int) -> V:
    dim = len(v.shape) - 1
    if not levels:
        return a.reshape(a.slice(v, dim, offset, offset + 1), v.shape[:-1])
    count, stride = levels[0]
    rows = _rows(a, v, stride)
    row, inside = divmod(offset, stride)
    return _strided_in(a, cut(a, rows, dim, row, row + count), levels[1:], inside)


def _strided_out(a: Algebra[V], v: V, source: V, levels: list[tuple[int, int]], offset: int) -> V:
    dim = len(v.shape) - 1
    extent = v.shape[dim]
    if not levels:
        source = a.reshape(source, (*v.shape[:-1], 1))
        parts = [a.slice(v, dim, 0, offset), source, a.slice(v, dim, offset + 1, extent)]
        return join(a, [part for part in parts if part.shape[dim]], dim)
    count, stride = levels[0]
    rows = _rows(a, v, stride)
    row, inside = divmod(offset, stride)
    middle = _strided_out(a, cut(a, rows, dim, row, row + count), source, levels[1:], inside)
    total = rows.shape[dim]
    parts = [a.slice(rows, dim, 0, row), middle, a.slice(rows, dim, row + count, total)]
    whole = join(a, [part for part in parts if part.shape[dim]], dim)
    return cut(a, a.reshape(whole, (*v.shape[:-1], total * stride)), dim, 0, extent)


def _rows(a: Algebra[V], v: V, stride: int) -> V:
    """The last dim as rows of one stride each, the last row filled up with zeros that nobody reads."""
    dim = len(v.shape) - 1
    missing = -v.shape[dim] % stride
    if missing:
        v = a.concat([v, zeros_like(a, v, dim, missing)], dim)
    return a.reshape(v, (*v.shape[:-1], v.shape[dim] // stride, stride))


def _positions(size: Sequence[int], stride: Sequence[int], offset: int) -> Indices:
    if math.prod(size) > MOST_INDICES:
        raise Unsupported("a strided view that overlaps itself, of more than a million elements")
    positions = np.full(tuple(size), offset, dtype=np.int64)
    for dim, (extent, step) in enumerate(zip(size, stride, strict=True)):
        shape = [1] * len(size)
        shape[dim] = extent
        positions += (np.arange(extent, dtype=np.int64) * step).reshape(shape)
    return positions
