"""Rows cut by sizes that the data decides, and put together again.

A size says how many rows a piece has.  Which rows those are follows where sizes are seen to be how many rows have the first values of the keys, the next ones, and so on;
where no key is left, how many of the first slots are rows, of the next ones, and so on.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from graphguard.refine.ragged.grains import Grain, counts, grains, members
from graphguard.refine.ragged.orders import Key, Names, Order, Orders, Rows, named
from graphguard.relations.algebra import Unsupported
from graphguard.relations.terms.values import NormalValue


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
        for grain in grains(self.orders, order, len(sizes)):
            ends = self._ends(counts(self.orders, grain, order), sizes)
            if ends is not None:
                return [members(self.orders, grain, *ends) for ends in zip([0, *ends], ends, strict=False)]
        return self._one_whole(order, sizes)

    def _one_whole(self, order: Order, sizes: Sequence[NormalValue]) -> list[NormalValue]:
        """Masks where one size counts all rows and the others none."""
        none = [self.orders.is_zero(size) for size in sizes]
        if none.count(False) != 1 or not self.orders.same(self.orders.length(order), sizes[none.index(False)]):
            raise Unsupported("rows that are cut where it is not seen what the sizes count")
        nothing = self.algebra.full((order.slots,), Fraction(0), "float")
        return [nothing if empty else self.orders.ones(order.slots) for empty in none]

    def _ends(self, counts: NormalValue, sizes: Sequence[NormalValue]) -> list[int] | None:
        """Up to which cell every piece goes, if sizes are sums of counts and all rows are in a piece."""
        ends: list[int] = []
        at = 0
        for size in sizes:
            end = at
            while not self._is_sum(counts, (at, end), size):
                if end == counts.shape[0]:
                    return None
                end += 1
            ends.append(end)
            at = end
        if not ends or not self.orders.is_zero(self.algebra.slice(counts, 0, at, counts.shape[0])):
            return None
        ends[-1] = counts.shape[0]
        return ends

    def _is_sum(self, counts: NormalValue, cells: tuple[int, int], total: NormalValue) -> bool:
        if cells[0] == cells[1]:
            return self.orders.is_zero(total)
        return self.orders.same(self.algebra.sum(self.algebra.slice(counts, 0, *cells), (0,)), total)

    # -- putting together

    def joined(self, parts: Sequence[Rows]) -> Rows:
        """The rows of one after the other; raises ``Unsupported`` where they do not fit together."""
        dim = parts[0].dim
        if len(parts) == 1:
            return parts[0]
        if any(part.dim != dim or part.target is not None for part in parts):
            raise Unsupported("rows that do not fit together")
        return self.orders.compacted(self._merged(parts) or self._behind_each_other(parts))

    def _merged(self, parts: Sequence[Rows]) -> Rows | None:
        """Parts of one order that follow one another in it, in that order."""
        first = parts[0].order
        whole = [replace(part.order, valid=first.valid) for part in parts if part.order.slots == first.slots]
        if len(whole) < len(parts) or not all(self.orders.alike(whole[0], other) for other in whole[1:]):
            return None
        for grain in grains(self.orders, first, len(parts)):
            occupied = [self._occupied(part.order, grain) for part in parts]
            ends = [(min(some), max(some)) for some in occupied if some]
            if all(before[1] < after[0] for before, after in itertools.pairwise(ends)):
                order = replace(first, valid=self.algebra.add([part.order.valid for part in parts]))
                data = self.algebra.add([self.orders.number(self.orders.masked(part)) for part in parts])
                return Rows(self.orders.of_kind(data, parts[0].data.kind), order, parts[0].dim, self._names(parts))
        return None

    def _occupied(self, order: Order, grain: Grain) -> list[int]:
        """The cells that may have rows."""
        rows = counts(self.orders, grain, order)
        each = (self.algebra.slice(rows, 0, at, at + 1) for at in range(rows.shape[0]))
        return [at for at, count in enumerate(each) if not self.orders.is_zero(count)]

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
        place = self._places([part.order.slots for part in parts])
        every = itertools.zip_longest(*(part.order.keys for part in parts))
        keys = [
            self._key([key or self._places([part.order.slots]) for key, part in zip(row, parts, strict=True)])
            for row in every
        ]
        order = Order(self.algebra.concat([part.order.valid for part in parts], 0), (place, *keys))
        names = [part.names for part in parts]
        together = self._key([name for name in names if name is not None]) if None not in names else None
        assert together is None or isinstance(together, Names)
        return Rows(self.algebra.concat([part.data for part in parts], dim), order, dim, together)

    def _places(self, sizes: Sequence[int]) -> Names:
        """The number of the part that a slot is of."""
        count = len(sizes)

        def of(part: int, size: int) -> NormalValue:
            columns = [
                self.algebra.full((size, width), Fraction(inside), "float")
                for width, inside in ((part, 0), (1, 1), (count - part - 1, 0))
                if width
            ]
            return self.algebra.concat(columns, 1)

        return Names(self.algebra.concat([of(part, size) for part, size in enumerate(sizes)], 0), tuple(range(count)))

    def _key(self, keys: Sequence[Key]) -> Key:
        """One key of slots behind each other."""
        names = named(keys)
        if len(names) == len(keys):
            values = sorted({value for key in names for value in key.values})
            wide = [self._widened(key, values) for key in names]
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
