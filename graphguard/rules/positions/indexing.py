"""``x[i, j, ...]`` and its kin: reading, writing and adding at positions given by tensors.

With S the common shape of the index tensors, ``x[i1, ..., ik]`` is the contraction of x with one one-hot factor per index.  A known index that runs along one
dim of S is layout instead: the rows are taken, and that dim of x and of S become one letter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic

import numpy as np

from graphguard.relations.algebra import Algebra, Unsupported, V
from graphguard.rules.basis.arithmetic import LETTERS, broadcast_shape, expanded, full, minus, plus, times
from graphguard.rules.basis.casting import convert
from graphguard.rules.basis.index_maps import Indices, counted_forward, from_the_front, in_few_pieces, put, take
from graphguard.rules.basis.merged_places import chosen
from graphguard.rules.basis.registry import rule
from graphguard.rules.positions.scatter import hit, writers


@dataclass(frozen=True, slots=True)
class Positions(Generic[V]):
    """Where an indexed read or write goes.

    ``dims`` are the indexed dims of x in order, ``shape`` is S; ``known`` and ``open`` split the indices, by place
    in ``dims``, into those that the trace knows and those that the data decides, each aligned to the dims of S.
    """

    dims: tuple[int, ...]
    shape: tuple[int, ...]
    known: dict[int, Indices]
    open: dict[int, V]

    @property
    def first(self) -> int:
        """The dim of the result at which S stands: the first indexed dim, or 0 where others lie between."""
        adjacent = all(later == earlier + 1 for earlier, later in zip(self.dims, self.dims[1:], strict=False))
        return self.dims[0] if adjacent else 0


def positions(a: Algebra[V], x: V, indices: Sequence[V | None]) -> tuple[V, Positions[V]]:
    """The indices of a call, bools as the positions where they hold; also x, with the dims of a bool mask made one."""
    x, listed = _without_masks(a, x, indices)
    dims = tuple(dim for dim, index in enumerate(listed) if index is not None)
    given = [index for index in listed if index is not None]
    shape = broadcast_shape(*(index.shape for index in given))
    known: dict[int, Indices] = {}
    unknown: dict[int, V] = {}
    for place, index in enumerate(given):
        aligned = (1,) * (len(shape) - len(index.shape)) + index.shape
        elements = a.known(index)
        if elements is None or not in_few_pieces(elements):
            unknown[place] = a.reshape(counted_forward(a, index, x.shape[dims[place]]), aligned)
        else:
            known[place] = from_the_front(elements, x.shape[dims[place]]).reshape(aligned)
    return x, Positions(dims, shape, known, unknown)


def _without_masks(a: Algebra[V], x: V, indices: Sequence[V | None]) -> tuple[V, list[V | None]]:
    listed: list[V | None] = []
    for index in indices:
        if index is None or index.kind != "bool":
            listed.append(index)
            continue
        mask = a.known(index)
        if mask is None:
            raise Unsupported("a selection by a mask that depends on the data")
        dim, rank = len(listed), max(len(index.shape), 1)
        shape = x.shape
        x = a.reshape(x, (*shape[:dim], math.prod(shape[dim : dim + rank]), *shape[dim + rank :]))
        listed.append(a.literal(np.flatnonzero(mask.reshape(-1))))
    return x, listed


@rule("aten.index.Tensor", "aten._unsafe_index.Tensor", "aten.index.Tensor_hacked_twin")
def index(a: Algebra[V], self: V, indices: Sequence[V | None]) -> V:
    """out[..., s, ...] = self[..., indices[0][s], indices[1][s], ...]; a known bool mask means the positions where it holds"""
    x, at = positions(a, self, indices)
    result = read(a, x, at)
    return _place(a, result, len(at.shape), at.first)


def _place(a: Algebra[V], v: V, count: int, first: int) -> V:
    """The leading ``count`` dims moved behind the ``first`` dims that follow them."""
    if first == 0 or count == 0:
        return v
    rank = len(v.shape)
    lead = list(range(count, count + first))
    return a.permute(v, [*lead, *range(count), *range(count + first, rank)])


def _unplace(a: Algebra[V], v: V, count: int, first: int) -> V:
    """The inverse of :func:`_place`."""
    if first == 0 or count == 0:
        return v
    rank = len(v.shape)
    return a.permute(v, [*range(first, first + count), *range(first), *range(first + count, rank)])


def read(a: Algebra[V], x: V, at: Positions[V]) -> V:
    """x at the positions: shape (\\*S, \\*the other dims)."""
    x = _indexed_first(a, x, at)
    if not at.open:
        return _read_known(a, x, at)
    if len(at.open) == 1 and not at.known:
        (only,) = at.open.values()
        return a.lookup(x, only)
    return _read_open(a, x, at)


def _indexed_first(a: Algebra[V], x: V, at: Positions[V]) -> V:
    others = [dim for dim in range(len(x.shape)) if dim not in at.dims]
    order = [*at.dims, *others]
    return x if order == sorted(order) else a.permute(x, order)


def _indexed_back(a: Algebra[V], x: V, at: Positions[V]) -> V:
    others = [dim for dim in range(len(x.shape)) if dim not in at.dims]
    order = [*at.dims, *others]
    return x if order == sorted(order) else a.permute(x, [order.index(dim) for dim in range(len(order))])


def _flat_positions(x: V, at: Positions[V]) -> tuple[Indices, tuple[int, ...]]:
    """Known positions in the flattening of the indexed dims, and those dims' extents."""
    extents = x.shape[: len(at.dims)]
    flat = np.zeros(at.shape, dtype=np.int64)
    for place, extent in enumerate(extents):
        if (at.known[place] >= extent).any() or (at.known[place] < 0).any():
            raise Unsupported(f"an index outside a dim of extent {extent}")
        flat = flat * extent + at.known[place]
    return flat.reshape(-1), extents


def _read_known(a: Algebra[V], x: V, at: Positions[V]) -> V:
    flat, extents = _flat_positions(x, at)
    rest = x.shape[len(extents) :]
    rows = take(a, a.reshape(x, (math.prod(extents), *rest)), 0, flat)
    return a.reshape(rows, (*at.shape, *rest))


@dataclass(frozen=True, slots=True)
class _Plan(Generic[V]):
    """A contraction over positions: x with known rows taken, its letters, the one-hot factors, and the letters of S."""

    x: V
    letters: str
    factors: list[tuple[V, str]]
    shape_letters: str
    rest: str
    rows: dict[int, Indices]


def _plan(a: Algebra[V], x: V, at: Positions[V]) -> _Plan[V]:
    shape_letters = LETTERS[: len(at.shape)]
    fresh = iter(LETTERS[len(at.shape) :])
    letters: list[str] = []
    factors: list[tuple[V, str]] = []
    rows: dict[int, Indices] = {}
    for place in range(len(at.dims)):
        if place in at.known:
            dim = _running_dim(at.known[place], letters, shape_letters)
            x = take(a, x, place, at.known[place].reshape(-1))
            rows[place] = at.known[place].reshape(-1)
            letters.append(shape_letters[dim])
            continue
        letter = next(fresh)
        hot = a.one_hot(at.open[place], x.shape[place], checked=True)
        kept = [dim for dim, extent in enumerate(at.open[place].shape) if extent != 1]
        names = "".join(shape_letters[dim] for dim in kept) + letter
        factors.append((a.reshape(hot, (*(hot.shape[dim] for dim in kept), x.shape[place])), names))
        letters.append(letter)
    rest = "".join(next(fresh) for _ in x.shape[len(at.dims) :])
    return _Plan(x, "".join(letters) + rest, factors, shape_letters, rest, rows)


def _running_dim(known: Indices, used: list[str], shape_letters: str) -> int:
    """The one dim of S along which a known index runs."""
    running = [dim for dim, extent in enumerate(known.shape) if extent != 1]
    if len(running) != 1 or shape_letters[running[0]] in used:
        raise Unsupported("a known index next to one that depends on the data, not along a dim of its own")
    return running[0]


def _read_open(a: Algebra[V], x: V, at: Positions[V]) -> V:
    plan = _plan(a, x, at)
    named = set(plan.letters) | {letter for _, names in plan.factors for letter in names}
    out = "".join(letter for letter in plan.shape_letters if letter in named) + plan.rest
    result = _summed(a, [(plan.x, plan.letters), *plan.factors], out, x.kind)
    shape = tuple(extent if plan.shape_letters[i] in named else 1 for i, extent in enumerate(at.shape))
    rest = x.shape[len(at.dims) :]
    return expanded(a, a.reshape(result, (*shape, *rest)), (*at.shape, *rest))


def _summed(a: Algebra[V], operands: list[tuple[V, str]], out: str, kind: Any) -> V:
    """A contraction with one-hot factors: over floats, and back to the kind of what is moved."""
    floats = [(convert(a, v, "float"), letters) for v, letters in operands]
    return convert(a, a.contract(floats, out), kind)


@rule(
    "aten.index_put.default",
    "aten._unsafe_index_put.default",
    "aten._index_put_impl.default",
    "aten.index_put.hacked_twin",
)
def index_put(
    a: Algebra[V], self: V, indices: Sequence[V | None], values: V, accumulate: bool = False, unsafe: bool = False
) -> V:
    """self with values written, or added, at [indices]; which of several values for one position stays is closed"""
    masked = _masked_write(a, self, indices, values, accumulate)
    if masked is not None:
        return masked
    x, at = positions(a, self, indices)
    rest = tuple(extent for dim, extent in enumerate(x.shape) if dim not in at.dims)
    placed = (*rest[: at.first], *at.shape, *rest[at.first :])
    values = _unplace(a, expanded(a, convert(a, values, self.kind), placed), len(at.shape), at.first)
    written = write(a, _indexed_first(a, x, at), at, values, accumulate)
    return a.reshape(_indexed_back(a, written, at), self.shape)


def _masked_write(a: Algebra[V], x: V, indices: Sequence[V | None], values: V, accumulate: bool) -> V | None:
    """x[mask] = number, for a mask that the data decides."""
    given = [index for index in indices if index is not None]
    if len(given) != 1 or given[0].kind != "bool" or a.known(given[0]) is not None:
        return None
    if indices[0] is None or math.prod(values.shape) != 1:
        raise Unsupported("values written through a mask that depends on the data")
    mask = a.reshape(given[0], given[0].shape + (1,) * (len(x.shape) - len(given[0].shape)))
    number = a.reshape(convert(a, values, x.kind), ())
    if accumulate:
        number = plus(a, x, number)
    return chosen(a, mask, number, x)


def write(a: Algebra[V], x: V, at: Positions[V], values: V, accumulate: bool) -> V:
    """x, whose indexed dims come first, with values of shape (\\*S, \\*rest) written or added at the positions."""
    if not at.open:
        return _write_known(a, x, at, values, accumulate)
    if not accumulate and not at.known:
        return _write_open(a, x, at, values)
    plan = _plan(a, x, at)
    if any(np.unique(rows).size != rows.size for rows in plan.rows.values()):
        raise Unsupported("a known index that repeats, next to one that depends on the data")
    if not accumulate:
        _check_distinct(at, plan)
        values = minus(a, values, _read_open(a, x, at))
    # values is spread over what the factors name; a dim of S that nothing names is summed over
    update = _summed(a, [(values, plan.shape_letters + plan.rest), *plan.factors], plan.letters, x.kind)
    updated = plus(a, plan.x, update)
    return _rows_back(a, x, updated, plan.rows)


def _write_open(a: Algebra[V], x: V, at: Positions[V], values: V) -> V:
    """Rows written at one flat position each, of which several may be the same."""
    extents, rest = x.shape[: len(at.dims)], x.shape[len(at.dims) :]
    flat = expanded(a, at.open[0], at.shape)
    for place, extent in enumerate(extents[1:], start=1):
        flat = plus(a, times(a, flat, extent), expanded(a, at.open[place], at.shape))
    flat = a.reshape(flat, (math.prod(at.shape),))
    rows = a.reshape(x, (math.prod(extents), *rest))
    named = a.reshape(hit(a, flat, 0, rows.shape[0]), (rows.shape[0], *(1 for _ in rest)))
    kept = chosen(a, named, full(a, rows.shape, 0, x.kind), rows)
    letters = LETTERS[: len(rest)]
    source = a.reshape(values, (flat.shape[0], *rest))
    placed = _summed(a, [(writers(a, flat, 0, rows.shape[0]), "yz"), (source, "y" + letters)], "z" + letters, x.kind)
    return a.reshape(plus(a, kept, placed), x.shape)


def _check_distinct(at: Positions[V], plan: _Plan[V]) -> None:
    """Every dim of S must be named by a known index without repetition, so that no two positions are equal."""
    named = {letter for place, letter in enumerate(plan.letters) if place in plan.rows}
    if any(extent != 1 and plan.shape_letters[dim] not in named for dim, extent in enumerate(at.shape)):
        raise Unsupported("writing at positions that depend on the data and may coincide")


def _rows_back(a: Algebra[V], x: V, updated: V, rows: dict[int, Indices]) -> V:
    """The updated rows in x's place of them."""
    if all(row.size == x.shape[place] and (row == np.arange(row.size)).all() for place, row in rows.items()):
        return updated
    (place, row), *more = rows.items()
    if more:
        raise Unsupported("several known indices next to one that depends on the data")
    return put(a, x, place, row, updated)


def _write_known(a: Algebra[V], x: V, at: Positions[V], values: V, accumulate: bool) -> V:
    flat, extents = _flat_positions(x, at)
    rest = x.shape[len(extents) :]
    rows = a.reshape(x, (math.prod(extents), *rest))
    source = a.reshape(values, (flat.size, *rest))
    if not accumulate:
        return a.reshape(put(a, rows, 0, flat, source), x.shape)
    if np.unique(flat).size == flat.size:
        source = plus(a, take(a, rows, 0, flat), source)
        return a.reshape(put(a, rows, 0, flat, source), x.shape)
    hot = a.one_hot(a.literal(flat), rows.shape[0])
    letters = LETTERS[: len(rest)]
    update = _summed(a, [(hot, "yz"), (source, "y" + letters)], "z" + letters, x.kind)
    return a.reshape(plus(a, rows, update), x.shape)
