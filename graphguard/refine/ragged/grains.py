"""Cells of rows that follow one another: by the values of the first keys, and behind all keys by the slots' own numbers.

Slots that are equal in all keys come in the order of their numbers, so the first slots of a cell, the next ones and so on are cells as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from graphguard.refine.ragged.orders import Names, Order, Orders, named
from graphguard.relations.algebra import Unsupported
from graphguard.relations.terms.values import NormalValue

_MOST_CELLS = 1024  # combinations of values of the keys, and of blocks of slots


@dataclass(frozen=True, slots=True)
class Grain:
    """``hot[n, k]`` is 1 where slot n has combination k of values, in order; each is divided into blocks of ``size`` slots."""

    hot: NormalValue
    size: int

    @property
    def blocks(self) -> int:
        """How many there are for every combination."""
        return self.hot.shape[0] // self.size


def grains(orders: Orders, order: Order, pieces: int) -> Iterator[Grain]:
    """Ever smaller cells; of slots as many to a cell as to one of the pieces, then one by one.  Raises ``Unsupported`` where there are too many values."""
    keys = named(order.keys)
    for depth in range(1, len(keys) + 1):
        yield Grain(_combined(orders, keys[:depth], order.slots), order.slots)
    if len(keys) < len(order.keys):
        return
    hot = _combined(orders, keys, order.slots)
    each = {order.slots // pieces if pieces and order.slots % pieces == 0 else 1, 1} - {order.slots, 0}
    for size in sorted(each, reverse=True):
        if order.slots // size * hot.shape[1] <= _MOST_CELLS:
            yield Grain(hot, size)


def _combined(orders: Orders, keys: list[Names], slots: int) -> NormalValue:
    """Which combination of values of keys every slot has: shape (N, combinations), combinations in order."""
    if prod(len(key.values) for key in keys) > _MOST_CELLS:
        raise Unsupported("rows in an order with too many values")
    if not keys:
        return orders.algebra.reshape(orders.ones(slots), (slots, 1))
    letters = "abcdefgh"[: len(keys)]
    hot = orders.algebra.contract(
        [(key.hot, f"n{letter}") for key, letter in zip(keys, letters, strict=True)], f"n{letters}"
    )
    return orders.algebra.reshape(hot, (slots, prod(hot.shape[1:])))


def counts(orders: Orders, grain: Grain, order: Order) -> NormalValue:
    """How many rows there are in every cell."""
    a, (slots, values) = orders.algebra, grain.hot.shape
    if grain.size == slots:
        return a.contract([(order.valid, "n"), (grain.hot, "nc")], "c")
    rows = a.contract([(order.valid, "n"), (grain.hot, "nc")], "cn")
    blocks = a.reshape(rows, (values * grain.blocks, grain.size))
    return a.sum(blocks, (1,))


def members(orders: Orders, grain: Grain, first: int, end: int) -> NormalValue:
    """1 at the slots of the cells from the first to before the end."""
    a, blocks = orders.algebra, grain.blocks
    nothing = a.full(grain.hot.shape[:1], Fraction(0), "float")
    (start, low), (last, high) = divmod(first, blocks), divmod(end, blocks)
    if start == last:
        return _part(orders, grain, start, low, high) if low < high else nothing
    parts = []
    if low:
        parts.append(_part(orders, grain, start, low, blocks))
        start += 1
    if start < last:
        parts.append(a.sum(a.slice(grain.hot, 1, start, last), (1,)))
    if high:
        parts.append(_part(orders, grain, last, 0, high))
    return a.add(parts) if parts else nothing


def _part(orders: Orders, grain: Grain, value: int, low: int, high: int) -> NormalValue:
    """1 at the slots of some blocks of a combination of values."""
    a, slots = orders.algebra, grain.hot.shape[0]
    ends = [0, low * grain.size, high * grain.size, slots]
    column = orders.column(grain.hot, value)
    parts = [
        a.slice(column, 0, start, end) if inside else a.full((end - start,), Fraction(0), "float")
        for start, end, inside in zip(ends, ends[1:], (False, True, False), strict=False)
        if start < end
    ]
    return a.concat(parts, 0) if len(parts) > 1 else parts[0]
