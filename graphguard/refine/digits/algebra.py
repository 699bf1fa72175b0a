"""The algebra of normal forms for all ranks of a program at once: every value has the digits as leading dims, and the rules see the others.

All operations are those of :class:`NormalForm` on tensors with more dims; what is said of a value is said of all ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Final, Literal

import numpy as np

from graphguard.refine.digits.stacks import Stack, Stacking
from graphguard.relations.algebra import Kind, Scalar, Unsupported
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.denotation import is_known, known_part
from graphguard.relations.terms.values import NormalValue

#: So many places of digits are looked at one by one.
_MOST_PLACES: Final = 64
_LETTERS = "zyxwvutsrqponmlkjihgfedcba"


class Stacked(Stacking):
    """Operations on tensors of all ranks; see :class:`~graphguard.relations.algebra.Algebra`."""

    def __init__(self, normal: NormalForm, sizes: Sequence[int], own: Callable[[NormalValue], NormalValue]) -> None:
        super().__init__(normal, sizes, own)
        self._made: dict[tuple[object, ...], Stack] = {}
        self._noted: dict[str, list[Any]] = {}

    # -- where values come from

    def leaf(
        self, name: str, shape: tuple[int, ...], kind: Kind, low: int | None = None, high: int | None = None
    ) -> Stack:
        return self.lift(self.normal.leaf(name, shape, kind, low, high))

    def literal(self, elements: np.ndarray) -> Stack:
        return self.lift(self.normal.literal(elements))

    def full(self, shape: tuple[int, ...], value: Scalar, kind: Kind) -> Stack:
        return self.lift(self.normal.full(tuple(shape), value, kind))

    def iota(self, extent: int) -> Stack:
        return self.lift(self.normal.iota(extent))

    def known(self, v: Stack) -> np.ndarray | None:
        plain = self.plain(v)
        return None if plain is None else self.normal.known(plain)

    def repeats(self, v: Stack, dim: int) -> bool:
        return self.normal.repeats(v.value, dim + self._count)

    def hold(self, v: Stack, dtype: str) -> None:
        self.normal.hold(v.value, dtype)

    def holds(self, v: Stack, dtype: str) -> bool:
        return self.normal.holds(v.value, dtype)

    def random(
        self, draw: tuple[str, int], name: str, attributes: tuple[object, ...], shape: tuple[int, ...], kind: Kind
    ) -> Stack:
        return self.lift(self.normal.random(draw, name, attributes, shape, kind))

    def once(self, key: tuple[object, ...], make: Callable[[], Stack]) -> Stack:
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = make()
        return found

    def noted(self, topic: str) -> list[Any]:
        return self._noted.setdefault(topic, [])

    def assume(self, text: str) -> None:
        self.normal.assume(text)

    def same(self, v: Stack, w: Stack) -> bool:
        return self.normal.same(v.value, w.value)

    # -- layout

    def reshape(self, v: Stack, shape: tuple[int, ...]) -> Stack:
        return self.of(self.normal.reshape(v.value, (*self.sizes, *shape)))

    def permute(self, v: Stack, dims: Sequence[int]) -> Stack:
        return self.of(self.normal.permute(v.value, (*range(self._count), *(dim + self._count for dim in dims))))

    def slice(self, v: Stack, dim: int, start: int, stop: int, step: int = 1) -> Stack:
        return self.of(self.normal.slice(v.value, dim + self._count, start, stop, step))

    def flip(self, v: Stack, dim: int) -> Stack:
        return self.of(self.normal.flip(v.value, dim + self._count))

    def concat(self, vs: Sequence[Stack], dim: int) -> Stack:
        return self.of(self.normal.concat([v.value for v in vs], dim + self._count))

    def expand(self, v: Stack, shape: tuple[int, ...]) -> Stack:
        shape = tuple(shape)
        if v.shape == shape:
            return v
        lead = (1,) * (len(shape) - len(v.shape))
        return self.of(
            self.normal.expand(self.normal.reshape(v.value, (*self.sizes, *lead, *v.shape)), (*self.sizes, *shape))
        )

    # -- arithmetic

    def add(self, vs: Sequence[Stack]) -> Stack:
        return self.of(self.normal.add([v.value for v in vs]))

    def scale(self, v: Stack, factor: Scalar) -> Stack:
        return self.of(self.normal.scale(v.value, factor))

    def multiply(self, a: Stack, b: Stack) -> Stack:
        return self.of(self.normal.multiply(a.value, b.value))

    def power(self, v: Stack, exponent: Fraction) -> Stack:
        return self.of(self.normal.power(v.value, exponent))

    def exp(self, v: Stack) -> Stack:
        return self.of(self.normal.exp(v.value))

    def log(self, v: Stack) -> Stack:
        return self.of(self.normal.log(v.value))

    def sum(self, v: Stack, dims: Sequence[int]) -> Stack:
        return self.of(self.normal.sum(v.value, [dim + self._count for dim in dims]))

    def contract(self, operands: Sequence[tuple[Stack, str]], out: str) -> Stack:
        """Digits along which no operand differs stay out of the product, so that what all ranks do alike is what the specification does."""
        letters = self._letters(operands, out)
        rows, used = [], set[int]()
        for v, names in operands:
            alike = self.alike(v)
            mine = [digit for digit in range(self._count) if digit not in alike]
            used.update(mine)
            value = self.without(v.value, alike)
            shape = (*(self.sizes[digit] for digit in mine), *v.shape)
            rows.append((self.normal.reshape(value, shape), "".join(letters[digit] for digit in mine) + names))
        lead = sorted(used)
        made = self.normal.contract(rows, "".join(letters[digit] for digit in lead) + out)
        return self.spread(made, made.shape[len(lead) :], [digit for digit in range(self._count) if digit not in used])

    def _letters(self, operands: Sequence[tuple[Stack, str]], out: str) -> str:
        """A letter for every digit that stands for no dim."""
        used = {letter for _, names in operands for letter in names.lower()} | set(out.lower())
        free = [letter for letter in _LETTERS if letter not in used][: self._count]
        if len(free) < self._count:
            raise Unsupported("more dims than there are letters")
        return "".join(free)

    def maximum(self, a: Stack, b: Stack) -> Stack:
        return self._at_places((a, b), self.normal.maximum)

    def max_over(self, v: Stack, dims: Sequence[int]) -> Stack:
        return self.of(self.normal.max_over(v.value, [dim + self._count for dim in dims]))

    def place_of_largest(self, v: Stack, dim: int) -> Stack:
        plain = self.plain(v)
        if plain is not None:
            return self.lift(self.normal.place_of_largest(plain, dim))
        return self.of(self.normal.place_of_largest(v.value, dim + self._count))

    # -- integers

    def floor_divide(self, v: Stack, divisor: int) -> Stack:
        return self._at_places((v,), lambda value: self.normal.floor_divide(value, divisor))

    def remainder(self, v: Stack, divisor: int) -> Stack:
        return self._at_places((v,), lambda value: self.normal.remainder(value, divisor))

    def one_hot(self, index: Stack, extent: int, checked: bool | Literal["known"] = False) -> Stack:
        return self.of(self.normal.one_hot(index.value, extent, checked))

    def lookup(self, table: Stack, index: Stack) -> Stack:
        letters = "abcdefghijklmnopqrstuvwxyz"
        rows, line = letters[: len(index.shape)], letters[len(index.shape)]
        rest = letters[len(rows) + 1 : len(rows) + len(table.shape)]
        found = self.contract(
            [(self.one_hot(index, table.shape[0], True), rows + line), (table, line + rest)], rows + rest
        )
        return self.of_kind(found, table.kind)

    # -- truth

    def compare(self, relation: Literal["lt", "le", "eq"], a: Stack, b: Stack) -> Stack:
        return self._at_places((a, b), lambda v, w: self.normal.compare(relation, v, w))

    def distinct(self, v: Stack, dim: int) -> bool:
        return self.normal.distinct(v.value, dim + self._count)

    def truths(self, v: Stack) -> bool:
        return self.normal.truths(v.value)

    def positive(self, v: Stack) -> bool:
        return self.normal.positive(v.value)

    def sorts_by(self, v: Stack) -> int:
        return 0

    def may_count_back(self, v: Stack) -> bool:
        return self.normal.may_count_back(v.value)

    def most_counted(self, v: Stack, digits: int) -> float | None:
        return self.normal.most_counted(v.value, digits)

    def groups(self, ends: Stack, extent: int) -> Stack | None:
        plain = self.plain(ends)
        found = None if plain is None else self.normal.groups(plain, extent)
        return None if found is None else self.lift(found)

    def truth(self, v: Stack) -> Stack:
        return self.of(self.normal.truth(v.value))

    def logical_not(self, v: Stack) -> Stack:
        return self.of(self.normal.logical_not(v.value))

    def logical_and(self, a: Stack, b: Stack) -> Stack:
        return self.of(self.normal.logical_and(a.value, b.value))

    def logical_or(self, a: Stack, b: Stack) -> Stack:
        return self.of(self.normal.logical_or(a.value, b.value))

    def number(self, v: Stack, kind: Literal["int", "float"]) -> Stack:
        return self.of(self.normal.number(v.value, kind))

    def where(self, condition: Stack, a: Stack, b: Stack) -> Stack:
        return self.of(self.normal.where(condition.value, a.value, b.value))

    # -- at every place alone

    def _at_places(self, values: Sequence[Stack], act: Callable[..., NormalValue]) -> Stack:
        """A function of whole numbers and truths that tells them apart by where they lie.

        Where numbers that are known at each place of a digit, as bounds of a rank's rows are, stand beside unknown ones, it is taken at each place alone: only a known bound divides unknown numbers.
        """
        digits = self._bounded(values)
        if math.prod(self.sizes[digit] for digit in digits) > _MOST_PLACES:
            digits = []
        return self.of(self._divided(digits, act, [v.value for v in values]))

    def _bounded(self, values: Sequence[Stack]) -> list[int]:
        """The digits along which known numbers differ that stand beside unknown ones."""
        if any(v.kind == "float" for v in values) or all(is_known(v.value) for v in values):
            return []
        known = [known_part(v.value) for v in values]
        return [digit for digit in range(self._count) if not all(self.normal.repeats(part, digit) for part in known)]

    def _divided(
        self, digits: Sequence[int], act: Callable[..., NormalValue], values: Sequence[NormalValue]
    ) -> NormalValue:
        if not digits:
            return act(*values)
        digit, *others = digits
        places = range(self.sizes[digit])
        return self.normal.concat(
            [
                self._divided(others, act, [self.normal.slice(value, digit, at, at + 1) for value in values])
                for at in places
            ],
            digit,
        )

    # -- what stays closed

    def apply(self, name: str, attributes: tuple[object, ...], vs: Sequence[Stack], kind: Kind) -> Stack:
        return self.of(self.normal.apply(name, attributes, [v.value for v in vs], kind))

    def opaque(
        self,
        name: str,
        attributes: tuple[object, ...],
        operands: Sequence[tuple[Stack, str]],
        out: str,
        out_shape: tuple[int, ...],
        kind: Kind,
    ) -> Stack:
        """Digits along which no operand differs stay out of the function; along the others it acts on every place alone."""
        letters = self._letters(operands, out)
        alike = set(range(self._count)).intersection(*(self.alike(v) for v, _ in operands))
        mine = [digit for digit in range(self._count) if digit not in alike]
        lead, sizes = "".join(letters[digit] for digit in mine), tuple(self.sizes[digit] for digit in mine)
        rows = [
            (self.normal.reshape(self.without(v.value, alike), (*sizes, *v.shape)), lead + names)
            for v, names in operands
        ]
        made = self.normal.opaque(name, attributes, rows, lead + out, (*sizes, *out_shape), kind)
        return self.spread(made, out_shape, alike)
