"""Rows without places: a tensor whose number of rows the data decides, as a choice among a fixed number of *slots*.

A :class:`Rows` denotes the tensor whose rows are those of ``data`` at the slots that are ``valid``, in the order of ``keys`` (the first one first), slots that are equal in all of
them in the order of their numbers.  Sorting changes the keys, choosing changes what is valid, computing on rows changes the data; no slot ever moves, so that nobody has to
know where a row is to say what it is.  What ``data`` holds at other slots is never part of the tensor.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from graphguard.relations.algebra import Kind, Unsupported
from graphguard.relations.functions.piecewise import equal
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.permutations import known_range
from graphguard.relations.terms.values import NormalValue

_MOST_NAMES = 512  # values of a key
_MOST_PARTS = 64  # ranges of slots that a tensor is put together from


@dataclass(frozen=True, slots=True)
class Names:
    """An integer per slot, one of few: ``hot[n, v]`` is 1 where slot n has ``values[v]`` and else 0; values ascend."""

    hot: NormalValue
    values: tuple[int, ...]


#: A number per slot; a line of integers of which nothing is known puts slots in an order that nothing else has.
Key: TypeAlias = Names | NormalValue


@dataclass(frozen=True, slots=True)
class Order:
    """Which slots there are, and in which order: ``valid`` is 1 or 0 for each of N slots."""

    valid: NormalValue
    keys: tuple[Key, ...] = ()

    @property
    def slots(self) -> int:
        """Their number."""
        return self.valid.shape[0]


@dataclass(frozen=True, slots=True)
class Rows:
    """A tensor whose dim ``dim`` has the rows of an order.

    ``names`` holds the data of a line of integers of few values once more.  With a ``target`` the data are numbers of slots of that order, and the tensor holds the places of their
    rows: what ``argsort`` and ``nonzero`` give.  Of several coordinates side by side those in column ``column`` are such places, the others are numbers.
    """

    data: NormalValue
    order: Order
    dim: int = 0
    names: Names | None = None
    target: Order | None = None
    column: int | None = None


class Orders:
    """What is known of orders, over one algebra; every answer is proved, and False or None where nothing is."""

    def __init__(self, algebra: NormalForm) -> None:
        self.algebra = algebra

    # -- values

    def same(self, a: NormalValue, b: NormalValue) -> bool:
        """Whether two values are equal."""
        if a.shape != b.shape:
            return False
        a, b = (self.algebra.number(v, "float") if v.kind != "float" else v for v in (a, b))
        return equal(self.algebra.universe, a, b)

    def is_zero(self, value: NormalValue) -> bool:
        """Whether a value is zero everywhere."""
        return all(not terms for _, terms in value.pieces)

    def ones(self, slots: int) -> NormalValue:
        """Every slot is valid."""
        return self.algebra.full((slots,), Fraction(1), "float")

    def column(self, hot: NormalValue, index: int) -> NormalValue:
        """Column ``index`` of a matrix."""
        return self.algebra.reshape(self.algebra.slice(hot, 1, index, index + 1), hot.shape[:1])

    def names_of(self, value: NormalValue) -> Names:
        """The integers of a line; raises ``Unsupported`` where they are not known to be few."""
        if len(value.shape) != 1 or value.kind == "float":
            raise Unsupported("an order by what is no line of integers")
        known = self.algebra.known(value)
        if known is not None:
            values = np.unique(known.astype(np.int64))
            hot = (known.astype(np.int64)[:, None] == values[None, :]).astype(float)
            return Names(self.algebra.literal(hot), tuple(int(v) for v in values))
        low, high = reach(value)
        if high - low > _MOST_NAMES:
            raise Unsupported("an order by integers of many values")
        shifted = self.algebra.add([value, self.algebra.full(value.shape, Fraction(-low), "int")]) if low else value
        return Names(self.algebra.one_hot(shifted, high - low, True), tuple(range(low, high)))

    def numbered(self, names: Names, kind: Kind) -> NormalValue:
        """The integers themselves."""
        return self.of_kind(self.weighted(names, np.asarray(names.values, dtype=float)), kind)

    def weighted(self, names: Names, weights: np.ndarray) -> NormalValue:
        """``sum over v of hot[:, v] * weights[v]``, shape (N, \\*weights.shape[1:])."""
        letters = "vxyzuw"[: weights.ndim]
        return self.algebra.contract(
            [(names.hot, "nv"), (self.algebra.literal(weights.astype(float)), letters)], f"n{letters[1:]}"
        )

    def renamed(self, names: Names, values: Sequence[int]) -> Names:
        """Other values for those there are, equal ones being one."""
        if tuple(values) == names.values:
            return names
        different = sorted(set(values))
        mapping = np.asarray([[float(value == other) for other in different] for value in values])
        return Names(self.weighted(names, mapping), tuple(different))

    # -- orders

    def length(self, order: Order) -> NormalValue:
        """The number of rows."""
        return self.algebra.sum(order.valid, (0,))

    def alike(self, a: Order, b: Order) -> bool:
        """Whether the same slots come in the same order."""
        if a is b:
            return True
        return (
            a.slots == b.slots
            and len(a.keys) == len(b.keys)
            and all(map(self._alike, a.keys, b.keys))
            and self.same(a.valid, b.valid)
        )

    def need_alike(self, a: Order, b: Order) -> None:
        """Raise ``Unsupported`` unless the same slots are seen to come in the same order."""
        if not self.alike(a, b):
            raise Unsupported("rows of two tensors that are not seen to belong together")

    def _alike(self, a: Key, b: Key) -> bool:
        if isinstance(a, Names) and isinstance(b, Names):
            return a.values == b.values and self.same(a.hot, b.hot)
        return isinstance(a, NormalValue) and isinstance(b, NormalValue) and self.same(a, b)

    def is_full(self, order: Order) -> bool:
        """Whether every slot is valid."""
        return self.same(order.valid, self.ones(order.slots))

    def is_plain(self, order: Order) -> bool:
        """Whether the rows are all slots one by one: an ordinary tensor."""
        return not order.keys and self.is_full(order)

    def chosen(self, order: Order, mask: NormalValue) -> Order:
        """The slots that a mask, 1 or 0, lets through as well."""
        return replace(order, valid=self.algebra.multiply(order.valid, mask))

    def places(self, order: Order) -> Rows:
        """The places of all rows of an order, in that order."""
        return Rows(self.algebra.iota(order.slots), order, target=order)

    def compacted(self, rows: Rows) -> Rows:
        """Without slots that are seen never to be valid, without a key that is the same everywhere, and without keys that put slots in the order of their numbers.

        So rows that are cut from others and put together again in another way are told in one way.
        """
        live = _live(rows.order.valid)
        if live is not None:
            rows = self._of_slots(rows, live)
        known = [_column(self.algebra.known(key.hot)) if isinstance(key, Names) else None for key in rows.order.keys]
        same = [column is not None and np.unique(column).size < 2 for column in known]
        columns = [column for column, alike in zip(known, same, strict=True) if not alike and column is not None]
        keys = tuple(key for key, alike in zip(rows.order.keys, same, strict=True) if not alike)
        if len(columns) == len(keys) and keys and _ascends(columns):
            keys = ()
        return rows if keys == rows.order.keys else replace(rows, order=replace(rows.order, keys=keys))

    def _of_slots(self, rows: Rows, parts: list[tuple[int, int]]) -> Rows:
        def of(value: NormalValue, dim: int = 0) -> NormalValue:
            pieces = [self.algebra.slice(value, dim, *part) for part in parts]
            return pieces[0] if len(pieces) == 1 else self.algebra.concat(pieces, dim)

        def names(key: Names) -> Names:
            return Names(of(key.hot), key.values)

        keys = tuple(names(key) if isinstance(key, Names) else of(key) for key in rows.order.keys)
        order = Order(of(rows.order.valid), keys)
        return Rows(
            of(rows.data, rows.dim), order, rows.dim, rows.names and names(rows.names), rows.target, rows.column
        )

    def masked(self, rows: Rows) -> NormalValue:
        """The data, zero (or false) at slots that are not valid."""
        if self.is_full(rows.order):
            return rows.data
        return self.let_through(rows.data, self.beside(rows.order.valid, rows.data.shape, rows.dim))

    def let_through(self, value: NormalValue, mask: NormalValue) -> NormalValue:
        """A value where a mask of its shape is 1, zero where it is 0."""
        return self.of_kind(self.algebra.multiply(self.number(value), mask), value.kind)

    def of_kind(self, value: NormalValue, kind: Kind) -> NormalValue:
        """Floats that are integers, or 0 and 1, as such."""
        if kind == "bool":
            return self.algebra.truth(value)
        return self.algebra.number(value, "int") if kind == "int" else value

    def number(self, value: NormalValue) -> NormalValue:
        """As a float."""
        return value if value.kind == "float" else self.algebra.number(value, "float")

    def beside(self, line: NormalValue, shape: tuple[int, ...], dim: int) -> NormalValue:
        """A line along a dim of a shape."""
        thin = tuple(size if at == dim else 1 for at, size in enumerate(shape))
        return self.algebra.expand(self.algebra.reshape(line, thin), shape)


def _column(hot: np.ndarray | None) -> np.ndarray | None:
    """For every slot the number of its value."""
    return None if hot is None else hot.argmax(1)


def _ascends(columns: list[np.ndarray]) -> bool:
    """Whether slots that are put in order by these, the first one first, stay where they are."""
    order = np.lexsort(columns[::-1])
    return bool((order == np.arange(order.size)).all())


def _live(valid: NormalValue) -> list[tuple[int, int]] | None:
    """The ranges of slots that may be valid; None where all may be, or none, or where they are scattered."""
    dead = np.zeros(valid.cells, dtype=bool)
    for box, terms in valid.pieces:
        if not terms:
            dead[tuple(slice(*span) for span in box)] = True
    line = dead.reshape(-1)
    ends = [0, *(np.flatnonzero(np.diff(line)) + 1).tolist(), line.size]
    parts = [part for part in itertools.pairwise(ends) if not line[part[0]]]
    return parts if line.any() and 0 < len(parts) <= _MOST_PARTS else None


def reach(value: NormalValue) -> tuple[int, int]:
    """A half-open range that holds the integers of a value; raises ``Unsupported``."""
    low, high = [], []
    for _, terms in value.pieces:
        if len(terms) != 1 or terms[0][0] != 1:
            raise Unsupported("an order by integers whose range is not known")
        known = known_range(terms[0][1][0])
        if known is None:
            raise Unsupported("an order by integers whose range is not known")
        low.append(known[0])
        high.append(known[1])
    return min(low, default=0), max(high, default=0)


def named(keys: Sequence[Key]) -> list[Names]:
    """The keys before the first of which nothing is known."""
    found: list[Names] = []
    for key in keys:
        if not isinstance(key, Names):
            break
        found.append(key)
    return found
