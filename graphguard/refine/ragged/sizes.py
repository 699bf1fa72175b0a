"""Rows cut by sizes that the data decides, and put together again.

A size says how many rows a piece has.  Which rows those are follows where sizes are seen to be how many rows have the first values of the keys, the next ones, and so on.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod

import numpy as np

from graphguard.refine.ragged.orders import Key, Names, Order, Orders, Rows
from graphguard.relations.algebra import Unsupported
from graphguard.relations.values import NormalValue

_MOST_CELLS = 1024  # combinations of values of the keys


class Cutting:
    """Cuts and joints of rows."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.algebra = orders.algebra

    def split(self, rows: Rows, sizes: Sequence[NormalValue]) -> list[Rows]:
        """Consecutive pieces of these numbers of rows; raises ``Unsupported`` where it is not seen which rows they are."""
        masks = self.masks(rows.order, sizes)
        return [self.orders.compacted(replace(rows, order=self.orders.chosen(rows.order, mask))) for mask in masks]

    def masks(self, order: Order, sizes: Sequence[NormalValue]) -> list[NormalValue]:
        """For every size, 1 at the slots whose rows it counts; what is 1 at slots that are not valid has no meaning."""
        sizes = [self.orders.number(size) for size in sizes]
        for depth in range(1, len(_named(order.keys)) + 1):
            cells = self.cells(order, depth)
            ends = self._ends(self._counts(order, cells), sizes)
            if ends is not None:
                pairs = zip([0, *ends], ends, strict=False)
                return [self.algebra.sum(self.algebra.slice(cells, 1, a, b), (1,)) for a, b in pairs]
        return self._one_whole(order, sizes)

    def _one_whole(self, order: Order, sizes: Sequence[NormalValue]) -> list[NormalValue]:
        """Masks where one size counts all rows and the others none."""
        none = [self.orders.is_zero(size) for size in sizes]
        if none.count(False) != 1 or not self.orders.same(self.orders.length(order), sizes[none.index(False)]):
            raise Unsupported("rows that are cut where it is not seen what the sizes count")
        nothing = self.algebra.full((order.slots,), Fraction(0), "float")
        return [nothing if empty else self.orders.ones(order.slots) for empty in none]

    def cells(self, order: Order, depth: int) -> NormalValue:
        """Which combination of values of the first keys every slot has: shape (N, combinations), combinations in order."""
        keys = _named(order.keys)[:depth]
        if prod(len(key.values) for key in keys) > _MOST_CELLS:
            raise Unsupported("rows in an order with too many values")
        letters = "abcdefgh"[: len(keys)]
        hot = self.algebra.contract(
            [(key.hot, f"n{letter}") for key, letter in zip(keys, letters, strict=True)], f"n{letters}"
        )
        return self.algebra.reshape(hot, (order.slots, prod(hot.shape[1:])))

    def _counts(self, order: Order, cells: NormalValue) -> list[NormalValue]:
        """How many rows there are in every cell."""
        counts = self.algebra.contract([(order.valid, "n"), (cells, "nc")], "c")
        return [self.algebra.reshape(self.algebra.slice(counts, 0, i, i + 1), ()) for i in range(cells.shape[1])]

    def _ends(self, counts: list[NormalValue], sizes: Sequence[NormalValue]) -> list[int] | None:
        """Up to which cell every piece goes, if sizes are sums of counts and all rows are in a piece."""
        ends: list[int] = []
        at = 0
        for size in sizes:
            taken: list[NormalValue] = []
            while not self._is_sum(taken, size):
                if at == len(counts):
                    return None
                taken.append(counts[at])
                at += 1
            ends.append(at)
        if not ends or any(not self.orders.is_zero(count) for count in counts[at:]):
            return None
        ends[-1] = len(counts)
        return ends

    def _is_sum(self, parts: list[NormalValue], total: NormalValue) -> bool:
        return self.orders.same(self.algebra.add(parts), total) if parts else self.orders.is_zero(total)

    # -- putting together

    def joined(self, parts: Sequence[Rows]) -> Rows:
        """The rows of one after the other; raises ``Unsupported`` where they do not fit together."""
        dim = parts[0].dim
        if len(parts) == 1:
            return parts[0]
        if any(part.dim != dim or part.target is not None for part in parts):
            raise Unsupported("rows that do not fit together")
        return self._merged(parts) or self._behind_each_other(parts)

    def _merged(self, parts: Sequence[Rows]) -> Rows | None:
        """Parts of one order that follow one another in it, in that order."""
        first = parts[0].order
        keys = _named(first.keys)
        whole = [replace(part.order, valid=first.valid) for part in parts]
        if not keys or not all(self.orders.alike(whole[0], other) for other in whole[1:]):
            return None
        for depth in range(1, len(keys) + 1):
            cells = self.cells(first, depth)
            occupied = [
                [i for i, count in enumerate(self._counts(part.order, cells)) if not self.orders.is_zero(count)]
                for part in parts
            ]
            ends = [(min(some), max(some)) for some in occupied if some]
            if all(before[1] < after[0] for before, after in itertools.pairwise(ends)):
                order = replace(first, valid=self.algebra.add([part.order.valid for part in parts]))
                data = self.algebra.add([self.orders.number(self.orders.masked(part)) for part in parts])
                return Rows(self.orders.of_kind(data, parts[0].data.kind), order, parts[0].dim, self._names(parts))
        return None

    def _names(self, parts: Sequence[Rows]) -> Names | None:
        """The integers of parts of one order."""
        names = [part.names for part in parts if part.names is not None]
        if len(names) < len(parts) or len({name.values for name in names}) > 1:
            return None
        hots = [
            self.algebra.multiply(name.hot, self.orders.beside(part.order.valid, name.hot.shape, 0))
            for name, part in zip(names, parts, strict=True)
        ]
        return Names(self.algebra.add(hots), names[0].values)

    def _behind_each_other(self, parts: Sequence[Rows]) -> Rows:
        """Slots behind each other; the number of the part is the first key."""
        dim = parts[0].dim
        sizes = [part.order.slots for part in parts]
        part_of = np.repeat(np.arange(len(parts)), sizes)
        place = Names(
            self.algebra.literal((part_of[:, None] == np.arange(len(parts))[None, :]).astype(float)),
            tuple(range(len(parts))),
        )
        if len({len(part.order.keys) for part in parts}) != 1:
            raise Unsupported("rows in orders of different kinds")
        keys = [self._key([part.order.keys[i] for part in parts]) for i in range(len(parts[0].order.keys))]
        order = Order(self.algebra.concat([part.order.valid for part in parts], 0), (place, *keys))
        names = [part.names for part in parts]
        together = self._key([name for name in names if name is not None]) if None not in names else None
        assert together is None or isinstance(together, Names)
        return Rows(self.algebra.concat([part.data for part in parts], dim), order, dim, together)

    def _key(self, keys: Sequence[Key]) -> Key:
        """One key of slots behind each other."""
        named = _named(keys)
        if len(named) == len(keys):
            values = sorted({value for key in named for value in key.values})
            wide = [self._widened(key, values) for key in named]
            return Names(self.algebra.concat(wide, 0), tuple(values))
        lines = [key for key in keys if isinstance(key, NormalValue)]
        if len(lines) != len(keys):
            raise Unsupported("rows in orders of different kinds")
        return self.algebra.concat(lines, 0)

    def _widened(self, key: Names, values: list[int]) -> NormalValue:
        """The matrix of a key with columns for values that it does not have."""
        if key.values == tuple(values):
            return key.hot
        wide = np.asarray([[float(value == other) for other in values] for value in key.values])
        return self.orders.weighted(key, wide)


def _named(keys: Sequence[Key]) -> list[Names]:
    """The keys before the first of which nothing is known."""
    found: list[Names] = []
    for key in keys:
        if not isinstance(key, Names):
            break
        found.append(key)
    return found
