"""Clean relations that no placement says: shards in another order, zigzags of chunks, blocks of several dims over one axis."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from graphguard.refine.found.layouts import Layouts
from graphguard.relations.relation import Concat, Expression, Held, Sliced
from graphguard.relations.terms.values import NormalValue

_CHUNKS = (1, 2, 4)  # into how many pieces a rank's tensor is cut, at most
_PLACES = 128  # chunks of the target, at most


def cover(layouts: Layouts, target: NormalValue, held: Mapping[int, NormalValue], name: str) -> Expression | None:
    """The target as a concatenation of the held tensors, or of chunks of them, in any order, or of the held tensors along several dims; None where there is none."""
    shapes = {value.shape for value in held.values()}
    if len(shapes) != 1 or len(next(iter(shapes))) != len(target.shape):
        return None
    shape = next(iter(shapes))
    differing = [dim for dim, (a, b) in enumerate(zip(shape, target.shape, strict=True)) if a != b]
    dims = differing or [dim for dim, size in enumerate(target.shape) if size > 1]
    distinct: dict[object, tuple[int, NormalValue]] = {}
    for rank, value in held.items():
        distinct.setdefault(value.key(), (rank, value))
    if len(differing) > 1:
        return _in_blocks(layouts, target, list(distinct.values()), differing, name)
    for dim in dims:
        for count in _CHUNKS:
            if shape[dim] % count or gcd(target.shape[dim], shape[dim] // count) != shape[dim] // count:
                continue
            found = _in_some_order(layouts, target, list(distinct.values()), dim, count, name)
            if found is not None:
                return found
    return None


def _in_blocks(
    layouts: Layouts, target: NormalValue, held: list[tuple[int, NormalValue]], dims: list[int], name: str
) -> Expression | None:
    """The target as blocks of the size of the held tensors, along one dim after another."""
    if not dims:
        found = next((rank for rank, value in held if layouts.same(value, target)), None)
        return None if found is None else Held(name, found)
    dim, *rest = dims
    size = held[0][1].shape[dim]
    if size == 0 or target.shape[dim] % size or target.shape[dim] // size > len(held):
        return None
    parts: list[Expression] = []
    for at in range(0, target.shape[dim], size):
        part = _in_blocks(layouts, layouts.algebra.slice(target, dim, at, at + size), held, rest, name)
        if part is None:
            return None
        parts.append(part)
    return Concat(tuple(parts), dim)


def _in_some_order(
    layouts: Layouts, target: NormalValue, held: list[tuple[int, NormalValue]], dim: int, count: int, name: str
) -> Expression | None:
    algebra = layouts.algebra
    size = held[0][1].shape[dim] // count
    places = target.shape[dim] // size
    if size == 0 or places > _PLACES or places > count * len(held):
        return None
    chunks = [
        (rank, place, algebra.slice(value, dim, place * size, (place + 1) * size))
        for rank, value in held
        for place in range(count)
    ]
    parts: list[Expression] = []
    for at in range(places):
        wanted = algebra.slice(target, dim, at * size, (at + 1) * size)
        match = next(((rank, place) for rank, place, chunk in chunks if layouts.same(chunk, wanted)), None)
        if match is None:
            return None
        rank, place = match
        tensor = Held(name, rank)
        ranges = tuple((place * size, (place + 1) * size) if d == dim else None for d in range(len(target.shape)))
        parts.append(tensor if count == 1 else Sliced(tensor, ranges))
    return parts[0] if len(parts) == 1 else Concat(tuple(parts), dim)
