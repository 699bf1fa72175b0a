"""The algebra that proves: values in normal form, so that equal values of the specification and the ranks become equal data.

See docs/engine.md for what each construct denotes and why equality of normal forms is sound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from operator import itemgetter
from typing import Any, Literal

import numpy as np

from graphguard.relations.algebra import Kind, Scalar, Unsupported
from graphguard.relations.facts.signs import positive, positive_within
from graphguard.relations.functions import contraction, exponentials, functions, maxima, sorting
from graphguard.relations.functions.choices import compared_choice
from graphguard.relations.functions.closed import opaque
from graphguard.relations.functions.grouping import groups
from graphguard.relations.functions.integers import (
    check_range,
    closed_quotient,
    compared,
    divided,
    larger_integer,
    may_count_back,
    one_hot,
    with_rest,
)
from graphguard.relations.functions.literals import literal, written_down
from graphguard.relations.functions.piecewise import act_on, equal, pointwise, scaled_value, settled_value
from graphguard.relations.functions.places import place_over
from graphguard.relations.functions.roots import as_root
from graphguard.relations.functions.truths import are_truths, as_one_truth
from graphguard.relations.prove.magnitudes import is_whole, most_counted
from graphguard.relations.prove.narrow import continued
from graphguard.relations.prove.precision import Precision
from graphguard.relations.simplify.table import TABLE
from graphguard.relations.sums import selected
from graphguard.relations.sums.linear import close, constant, exact, fold, normalise, powered, times
from graphguard.relations.terms import infinity, layout
from graphguard.relations.terms.denotation import is_known, known_elements
from graphguard.relations.terms.kernels import UNBOUNDED, Number, Ref, Terms, Universe, ratio
from graphguard.relations.terms.permutations import at_most_once, distinct
from graphguard.relations.terms.values import NormalValue, Piece, aligned, extents_of, merged, single
from graphguard.relations.terms.windows import joined, whole

_KNOWN = 65536
_CLEARLY = 1e-6  # a number computed in doubles that is larger is larger than zero
_REMEMBERED = 64  # tensors whose elements are kept: every rank looks up the same ones


class NormalForm:
    """The algebra of normal forms over one universe of kernels."""

    def __init__(self, universe: Universe | None = None) -> None:
        self.universe = universe or Universe()
        self.universe.rules = TABLE
        self._made: dict[tuple[object, ...], NormalValue] = {}
        self._noted: dict[str, list[Any]] = {}
        self._elements: dict[tuple[object, ...], np.ndarray | None] = {}
        self.precision = Precision(self.universe)

    # -- where values come from

    def leaf(
        self, name: str, shape: tuple[int, ...], kind: Kind, low: int | None = None, high: int | None = None
    ) -> NormalValue:
        """An unknown; see :class:`~graphguard.relations.algebra.Algebra` for this and what follows."""
        kernel = self.universe.leaf(name, shape, kind)
        if low is not None or high is not None:
            kernel.range = (-UNBOUNDED // 2 if low is None else low, UNBOUNDED // 2 if high is None else high)
            self.universe.declared.add(name)
        fact = self.universe.facts.get(name)
        if fact is not None and kernel.range is None:
            kernel.range = fact
        return single(shape, kind, ((1, whole(kernel)),))

    def literal(self, elements: np.ndarray) -> NormalValue:
        """A known tensor."""
        elements = np.asarray(elements)
        alike = elements.dtype.kind == "f" and elements.size and np.isfinite(elements.flat[0])
        if alike and (elements == elements.flat[0]).all():
            return self.full(elements.shape, float(elements.flat[0]), "float")
        return literal(self.universe, elements)

    def full(self, shape: tuple[int, ...], value: Scalar, kind: Kind) -> NormalValue:
        """One known number everywhere."""
        if value == float("-inf"):
            return single(shape, kind, infinity.minus_infinity(self.universe, shape))
        if isinstance(value, float) and (value != value or value == float("inf")):
            raise Unsupported("a constant that is infinite or not a number")
        number = ratio(exact(value))
        root = as_root(number) if self.universe.expand > 1 else None
        known = single(shape, kind, constant(self.universe, 1 if root else number, shape))
        return self.scale(known, number) if root else known

    def iota(self, extent: int) -> NormalValue:
        """0, 1, ..., extent - 1."""
        terms = fold(
            self.universe, [(1, (self.universe.iota, (0,), (((0, 1, extent),) if extent != 1 else (),), ()))], (extent,)
        )
        return single((extent,), "int", terms)

    def known(self, v: NormalValue) -> np.ndarray | None:
        """The elements of a value without unknowns."""
        size = 1
        for dim in v.shape:
            size *= dim
        if size > _KNOWN or not is_known(v):
            return None
        key = v.key()
        if key not in self._elements:
            if len(self._elements) == _REMEMBERED:
                self._elements.clear()
            self._elements[key] = known_elements(v)
        found = self._elements[key]
        return None if found is None else found.copy()

    def repeats(self, v: NormalValue, dim: int) -> bool:
        """Whether no term of the value reads the dim."""
        return layout.repeats(v, dim)

    def hold(self, v: NormalValue, dtype: str) -> None:
        """Remember an element type."""
        self.precision.add(v, dtype)

    def holds(self, v: NormalValue, dtype: str) -> bool:
        """Whether these numbers were there in this type."""
        return self.precision.has(v, dtype)

    def only_wider(self, v: NormalValue, wider: Sequence[str], others: Sequence[str]) -> str | None:
        """The first of the ``wider`` types in which alone the specification has these numbers."""
        return self.precision.only_wider(v, wider, others)

    def has_digits(self, v: NormalValue, dtypes: Iterable[str]) -> bool:
        """Whether the specification has multiples of these numbers in some of the types."""
        return self.precision.has_digits(v, dtypes)

    def specifies(self, v: NormalValue, dtype: str) -> bool:
        """Whether the specification has these numbers in a type."""
        return self.precision.specifies(v, dtype)

    def once(self, key: tuple[object, ...], make: Callable[[], NormalValue]) -> NormalValue:
        """What was made for a key before, or is made now."""
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = make()
        return found

    def noted(self, topic: str) -> list[Any]:
        """What rules noted of this topic."""
        return self._noted.setdefault(topic, [])

    def assume(self, text: str) -> None:
        """The proof rests on this."""
        self.universe.assumed.add(text)

    def same(self, v: NormalValue, w: NormalValue) -> bool:
        """Whether they have one normal form."""
        return v.shape == w.shape and v.kind == w.kind and equal(self.universe, v, w)

    def written_down(self, v: NormalValue) -> NormalValue:
        """The same value, in a form of its own where it is small and known."""
        return written_down(self.universe, v)

    def random(
        self, draw: tuple[str, int], name: str, attributes: tuple[object, ...], shape: tuple[int, ...], kind: Kind
    ) -> NormalValue:
        """The outcome of a random draw, an unknown of its own."""
        kernel = self.universe.leaf(f"{name}{attributes!r} drawn as {draw[0]}#{draw[1]}", shape, kind)
        return single(shape, kind, ((1, whole(kernel)),))

    # -- layout

    def reshape(self, v: NormalValue, shape: tuple[int, ...]) -> NormalValue:
        """Row-major order kept."""
        return layout.reshape(v, tuple(shape))

    def permute(self, v: NormalValue, dims: Sequence[int]) -> NormalValue:
        """Dims in another order."""
        return layout.permute(v, dims)

    def slice(self, v: NormalValue, dim: int, start: int, stop: int, step: int = 1) -> NormalValue:
        """A range of one dim."""
        return settled_value(self.universe, layout.slice_dim(v, dim, start, stop, step))

    def flip(self, v: NormalValue, dim: int) -> NormalValue:
        """Reverse order along a dim."""
        return layout.flip(v, dim)

    def concat(self, vs: Sequence[NormalValue], dim: int) -> NormalValue:
        """Joined along a dim; where products are written out, thin parts are looked at more closely."""
        joint = layout.concat(vs, dim)
        return continued(self.universe, joint) if self.universe.expand > 1 and len(joint.pieces) > 1 else joint

    def expand(self, v: NormalValue, shape: tuple[int, ...]) -> NormalValue:
        """Broadcast."""
        return layout.expand(v, tuple(shape))

    # -- arithmetic

    def add(self, vs: Sequence[NormalValue]) -> NormalValue:
        """The sum."""
        if len(vs) == 1:
            return vs[0]
        universe = self.universe

        def act(rows: list[Terms], sizes: tuple[int, ...]) -> Terms:
            return normalise(universe, [term for row in rows for term in row], sizes)

        return pointwise(vs, _numeric(vs), act)

    def scale(self, v: NormalValue, factor: Scalar) -> NormalValue:
        """A multiple."""
        if isinstance(factor, float) and not np.isfinite(factor):
            raise Unsupported("a product with infinity")
        number = exact(factor)
        if number <= 0:
            self._finite(v)  # 0 * inf is no number, and only minus infinity is known
        kind: Kind = v.kind if number.denominator == 1 and not isinstance(factor, float) else "float"
        root = as_root(number) if self.universe.expand > 1 and not self._may_be_infinite(v) else None
        if root is None:
            return scaled_value(self.universe, v, number, kind)
        radical = self.power(self.full(v.shape, Fraction(root[1]), "float"), Fraction(1, 2))
        return self.multiply(scaled_value(self.universe, v, exact(root[0]), kind), radical)

    def multiply(self, a: NormalValue, b: NormalValue) -> NormalValue:
        """The elementwise product."""
        self._finite(a, b)
        return self._by_elements([a, b], _numeric([a, b]), self._product)

    def _product(self, rows: list[Terms], sizes: tuple[int, ...]) -> Terms:
        for condition, terms in (rows, rows[::-1]):
            known = compared_choice(self.universe, condition, terms, (), sizes)
            if known is not None:
                return known
        return times(self.universe, rows[0], rows[1], sizes)

    def power(self, v: NormalValue, exponent: Fraction) -> NormalValue:
        """A rational power."""
        self._finite(v)
        number: Number = int(exponent) if exponent.denominator == 1 else exponent
        kind: Kind = v.kind if exponent.denominator == 1 and exponent >= 0 else "float"

        def act(rows: list[Terms], sizes: tuple[int, ...]) -> Terms:
            return powered(self.universe, rows[0], number, sizes)

        if number > 0 and isinstance(number, int):  # a product of selected elements is selected by itself
            return self._by_elements([v], kind, act)
        return self._by_function([v], kind, act)

    def exp(self, v: NormalValue) -> NormalValue:
        """The exponential."""
        return self._by_function(
            [v], "float", lambda rows, sizes: exponentials.exponential(self.universe, rows[0], sizes)
        )

    def log(self, v: NormalValue) -> NormalValue:
        """The natural logarithm."""
        return self._by_function(
            [v], "float", lambda rows, sizes: exponentials.logarithm(self.universe, rows[0], sizes)
        )

    def sum(self, v: NormalValue, dims: Sequence[int]) -> NormalValue:
        """Summed over dims."""
        return contraction.total(self.universe, v, tuple(dims)) if dims else v

    def contract(self, operands: Sequence[tuple[NormalValue, str]], out: str) -> NormalValue:
        """An Einstein summation."""
        self._finite(*(value for value, _ in operands))
        return sorting.contracted(
            self.universe, operands, out, lambda rows, letters: contraction.product(self.universe, rows, letters)
        )

    def maximum(self, a: NormalValue, b: NormalValue) -> NormalValue:
        """The elementwise larger one."""
        whole = is_whole(self.universe, a) and is_whole(self.universe, b)

        def act(rows: list[Terms], sizes: tuple[int, ...]) -> Terms:
            chosen = larger_integer(self.universe, rows[0], rows[1], sizes) if whole else None
            return maxima.larger(self.universe, rows, sizes) if chosen is None else chosen

        return self._by_function([a, b], _numeric([a, b]), act)

    def max_over(self, v: NormalValue, dims: Sequence[int]) -> NormalValue:
        """The largest over dims."""
        return contraction.maximum_over(self.universe, v, tuple(dims)) if dims else v

    def place_of_largest(self, v: NormalValue, dim: int) -> NormalValue:
        """Where the largest stands along a dim."""
        try:
            return place_over(self.universe, v, dim)
        except Unsupported:
            letters = "abcdefghijklmnopqrstuvwxyz"[: len(v.shape)]
            line = letters[:dim] + "A" + letters[dim + 1 :]
            shape = (*v.shape[:dim], *v.shape[dim + 1 :])
            return self.opaque("argmax", (), [(v, line)], line.replace("A", ""), shape, "int")

    # -- integers

    def floor_divide(self, v: NormalValue, divisor: int) -> NormalValue:
        """The floor of a quotient."""
        return self._each(v, "int", lambda terms, sizes: self._divided(terms, divisor, sizes)[0])

    def remainder(self, v: NormalValue, divisor: int) -> NormalValue:
        """What the floor leaves."""
        return self._each(v, "int", lambda terms, sizes: self._divided(terms, divisor, sizes)[1])

    def _divided(self, terms: Terms, divisor: int, sizes: tuple[int, ...]) -> tuple[Terms, Terms]:
        exactly = divided(self.universe, terms, divisor, sizes)
        if exactly is not None:
            return exactly
        floor = closed_quotient(self.universe, terms, divisor, sizes)
        return with_rest(self.universe, terms, floor, divisor, sizes)

    def one_hot(self, index: NormalValue, extent: int, checked: bool | Literal["known"] = False) -> NormalValue:
        """1 where the last coordinate equals the index."""
        return sorting.elementwise(self.universe, [index], lambda rows: self._one_hot(rows[0], extent, checked))

    def _one_hot(self, index: NormalValue, extent: int, checked: bool | Literal["known"]) -> NormalValue:
        shape = (*index.shape, extent)
        if 0 in shape:
            return single(shape, "float", ())
        if checked:
            for box, terms in index.pieces:
                sizes = tuple(high - low for low, high in box)
                check_range(self.universe, terms, sizes, extent, unless_unknown=checked == "known")
        pieces: list[Piece] = []
        for box, terms in index.pieces:
            for inner, result in act_on(
                box, [terms], lambda rows, sizes: one_hot(self.universe, rows[0], sizes, extent, 0)
            ):
                pieces.append(((*inner, (0, extent)), result))
        return NormalValue(shape, "float", merged(pieces), (*index.grid, (extent,)))

    def lookup(self, table: NormalValue, index: NormalValue) -> NormalValue:
        """``table[index]``."""
        hot = self.one_hot(index, table.shape[0], checked=True)
        letters = "abcdefghijklmnopqrstuvwxyz"
        rows = letters[: len(index.shape)]
        rest = letters[len(rows) + 1 : len(rows) + len(table.shape)]
        line = letters[len(rows)]
        found = self.contract([(hot, rows + line), (table, line + rest)], rows + rest)
        return NormalValue(found.shape, table.kind, found.pieces, found.grid)

    # -- truth

    def compare(self, relation: Literal["lt", "le", "eq"], a: NormalValue, b: NormalValue) -> NormalValue:
        """The truth of a relation."""
        integral = a.kind != "float" and b.kind != "float"
        return self._by_function(
            [a, b], "bool", lambda rows, sizes: compared(self.universe, relation, rows[0], rows[1], sizes, integral)
        )

    def distinct(self, v: NormalValue, dim: int) -> bool:
        """Whether no integer comes twice along a dim."""
        return distinct(v, dim)

    def at_most_once(self, v: NormalValue) -> bool:
        """Whether all numbers are seen to be 0 or 1."""
        return at_most_once(v)

    def truths(self, v: NormalValue) -> bool:
        """Whether every term is a truth, or the opposite of one."""
        return are_truths(v)

    def positive(self, v: NormalValue) -> bool:
        """Whether all numbers are seen to be larger than zero: known ones, sums of exponentials and sigmoids."""
        known = self.known(v)
        if known is not None:
            return bool((known > _CLEARLY).all())
        terms = [term for _, terms in v.pieces for term in terms]
        return all(map(itemgetter(1), v.pieces)) and all(c > 0 and _is_positive(ref) for c, ref in terms)

    def sorts_by(self, v: NormalValue) -> int:
        """By which of v and its negative sorted lines are said where products are written out: the one whose leading term counts upwards."""
        if self.universe.expand == 1 or not v.pieces:
            return 0
        box, terms = v.pieces[0]
        return -1 if close(self.universe, terms, extents_of(box))[0] < 0 else 1

    def may_count_back(self, v: NormalValue) -> bool:
        """Whether integers are declared that may be below zero."""
        return any(may_count_back(self.universe, terms, extents_of(box)) for box, terms in v.pieces)

    def most_counted(self, v: NormalValue, digits: int) -> float | None:
        """The most that counts, positions and what is computed of them can be."""
        return most_counted(self.universe, v, digits)

    def groups(self, ends: NormalValue, extent: int) -> NormalValue | None:
        """Of a sorted line, the places of equal elements."""
        return groups(self.universe, ends, extent)

    def truth(self, v: NormalValue) -> NormalValue:
        """A number that is 0 or 1, as a bool."""
        return NormalValue(v.shape, "bool", v.pieces, v.grid)

    def logical_not(self, v: NormalValue) -> NormalValue:
        """Negation."""

        def act(terms: Terms, sizes: tuple[int, ...]) -> Terms:
            return normalise(
                self.universe, [*constant(self.universe, 1, sizes), *((-c, ref) for c, ref in terms)], sizes
            )

        return self._each(v, "bool", act)

    def logical_and(self, a: NormalValue, b: NormalValue) -> NormalValue:
        """Conjunction."""
        return self._by_elements([a, b], "bool", lambda rows, sizes: times(self.universe, rows[0], rows[1], sizes))

    def logical_or(self, a: NormalValue, b: NormalValue) -> NormalValue:
        """Disjunction."""

        def act(rows: list[Terms], sizes: tuple[int, ...]) -> Terms:
            both = times(self.universe, rows[0], rows[1], sizes)
            return normalise(self.universe, [*rows[0], *rows[1], *((-c, ref) for c, ref in both)], sizes)

        return self._by_elements([a, b], "bool", act)

    def number(self, v: NormalValue, kind: Literal["int", "float"]) -> NormalValue:
        """A value as a number of a kind."""
        if v.kind == kind:
            return v
        if v.kind == "float":
            return self._each(
                v, "int", lambda terms, sizes: functions.applied(self.universe, "trunc", (), [terms], "int", sizes)
            )
        return NormalValue(v.shape, kind, v.pieces, v.grid)

    def where(self, condition: NormalValue, a: NormalValue, b: NormalValue) -> NormalValue:
        """A choice by a truth value."""
        universe = self.universe

        def act(rows: list[Terms], sizes: tuple[int, ...]) -> Terms:
            if rows[1] == rows[2]:
                return rows[1]
            known = compared_choice(universe, rows[0], rows[1], rows[2], sizes)
            if known is not None:
                return known
            if any(infinity.is_infinite(ref) for row in rows[1:] for _, ref in row):
                rows = [as_one_truth(universe, rows[0], sizes), *rows[1:]]
            no = normalise(universe, [*constant(universe, 1, sizes), *((-c, ref) for c, ref in rows[0])], sizes)
            chosen = [*times(universe, rows[0], rows[1], sizes), *times(universe, no, rows[2], sizes)]
            return normalise(universe, chosen, sizes)

        kind: Kind = a.kind if a.kind == b.kind else _numeric([a, b])
        return self._by_elements([condition, a, b], kind, act)

    # -- what stays closed

    def apply(self, name: str, attributes: tuple[object, ...], vs: Sequence[NormalValue], kind: Kind) -> NormalValue:
        """An elementwise function known by its name."""
        names = tuple(map(str, attributes))
        return self._by_function(
            list(vs), kind, lambda rows, sizes: functions.applied(self.universe, name, names, rows, kind, sizes)
        )

    def opaque(
        self,
        name: str,
        attributes: tuple[object, ...],
        operands: Sequence[tuple[NormalValue, str]],
        out: str,
        out_shape: tuple[int, ...],
        kind: Kind,
    ) -> NormalValue:
        """A function known by its name, batched over shared lower-case letters."""
        names = tuple(map(str, attributes))
        if name == "argsort" and names == ("False",) and len(operands) == 1:
            found = sorting.inverse(self.universe, operands[0][0])
            if found is not None:
                return found
        return opaque(self.universe, name, names, operands, out, out_shape, kind)

    def _finite(self, *values: NormalValue) -> None:
        """Refuse values that may be infinite: a product with infinity is no number where the other factor is 0."""
        if any(map(self._may_be_infinite, values)):
            raise Unsupported("a product with infinity")

    def _may_be_infinite(self, value: NormalValue) -> bool:
        return ("infinity",) in self.universe.table and any(
            ref[0].infinite for _, terms in value.pieces for _, ref in terms
        )

    def _each(self, v: NormalValue, kind: Kind, act: Callable[[Terms, tuple[int, ...]], Terms]) -> NormalValue:
        return self._by_elements([v], kind, lambda rows, sizes: act(rows[0], sizes))

    def _by_function(
        self, values: list[NormalValue], kind: Kind, act: Callable[[list[Terms], tuple[int, ...]], Terms]
    ) -> NormalValue:
        """A function of elements that is no product of them: of selected ones it is selected."""
        return self._by_elements(values, kind, lambda rows, sizes: selected.acted(self.universe, rows, sizes, act))

    def _by_elements(
        self, values: list[NormalValue], kind: Kind, act: Callable[[list[Terms], tuple[int, ...]], Terms]
    ) -> NormalValue:
        return sorting.elementwise(self.universe, values, lambda rows: pointwise(rows, kind, act))


def _is_positive(ref: Ref) -> bool:
    return positive(ref[0]) or positive_within(ref[0], ref[3])


def _numeric(values: Sequence[NormalValue]) -> Kind:
    """The kind of a sum or a product."""
    return "float" if any(value.kind == "float" for value in values) else "int"


__all__ = ["NormalForm", "aligned", "joined"]
