"""Equality element by element: small values compared at every place, with all sums written out.

The normal form keeps tensors whole.  Where two programs cut the same elements apart differently (positions kept by a known mask, rows put
together in another order, a short recurrence), no whole form is shared, but each element is still one and the same sum of products of elements of the
leaves.  Here references are followed to single coordinates: what a kernel denotes there is written down by its definition (see docs/engine.md), so two
values whose difference has no terms anywhere are equal.  It takes time that grows with the elements, so random numbers are asked before (``differ_on_numbers``).
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from fractions import Fraction
from math import ceil, floor, inf, prod, trunc
from typing import Any, Final

import numpy as np

from graphguard.relations.algebra import Unsupported
from graphguard.relations.functions.exponentials import exponential, logarithm
from graphguard.relations.functions.functions import applied, elementwise
from graphguard.relations.functions.maxima import larger
from graphguard.relations.functions.piecewise import difference
from graphguard.relations.sums.linear import close, constant, exact, powered
from graphguard.relations.sums.products import multiply
from graphguard.relations.terms.denotation import Denotation
from graphguard.relations.terms.kernels import (
    UNBOUNDED,
    Budget,
    Factor,
    Kernel,
    Number,
    Ref,
    Term,
    Terms,
    Universe,
    Window,
    order,
)
from graphguard.relations.terms.values import NormalValue, extents_of

_ELEMENTS: Final = 1024  # of a value that is compared
_WINDOW: Final = 1024  # summands that are written out
_TERMS: Final = 1024  # of one element
_STEPS: Final = 400_000  # constructions for one comparison
_DRAWN: Final = 1 << 16
_KEPT: Final = 1 << 23  # numbers of a draw
_LARGEST: Final = 1 << 20  # elements that are written down of a sum that is not finite
_DRAWS: Final = 4  # what integers choose may be the same for some of them
_SPREAD: Final = 64  # integers that are drawn of a range
_ROUNDING: Final = 1e-6
_TRUTHS: Final = frozenset(("gt0", "ge0", "eq0"))
_PLAIN: Final[dict[str, Callable[..., int | Fraction]]] = {
    "gt0": lambda x: int(x > 0),
    "ge0": lambda x: int(x >= 0),
    "eq0": lambda x: int(x == 0),
    "sign": lambda x: (x > 0) - (x < 0),
    "abs": abs,
    "floor": floor,
    "ceil": ceil,
    "trunc": trunc,
    "floor_divide": lambda x, divisor: floor(x / int(divisor)),
}


def equal_at_points(universe: Universe, a: NormalValue, b: NormalValue) -> bool:
    """Whether two values are equal at every element; False where that cannot be shown within the budget."""
    if a.shape != b.shape or a.kind != b.kind or prod(a.shape) > _ELEMENTS or differ_on_numbers(universe, a, b):
        return False
    try:
        rest = difference(universe, a, b)
    except Unsupported:
        return False
    key = ("vanishes", tuple(rest.pieces))  # diagnosis asks of one difference again and again
    known = universe.cases.get(key)
    if known is None:
        known = universe.cases[key] = _vanishes(universe, rest)
    return bool(known)


def differ_on_numbers(universe: Universe, a: NormalValue, b: NormalValue) -> bool:
    """Whether random numbers tell two values apart, so that no proof of their equality need be looked for; False where they cannot be asked."""
    if a.shape != b.shape or a.kind != b.kind or prod(a.shape) > _DRAWN:
        return False
    with np.errstate(all="ignore"):
        for draw in range(_DRAWS):
            drawn = _drawn(universe, draw)
            first, second = drawn.numbers(a), drawn.numbers(b)
            if first is None or second is None:
                continue
            size = np.maximum(1, np.maximum(np.abs(first), np.abs(second)))
            if (np.abs(first - second) > _ROUNDING * size).any():
                return True
    return False


def _vanishes(universe: Universe, rest: NormalValue) -> bool:
    elements = _Elements(universe)
    try:
        return all(elements.vanishes(terms, extents_of(box)) for box, terms in rest.pieces)
    except Unsupported:
        return False


class _Elements:
    """Single elements of kernels, written out; gives up after a number of steps."""

    def __init__(self, universe: Universe) -> None:
        self.universe = universe
        self.limit = universe.steps + _STEPS
        self.open: set[Hashable] = set()

    def vanishes(self, terms: Terms, extents: tuple[int, ...]) -> bool:
        """Whether terms add to nothing at every place of a box."""
        if not terms:
            return True
        for place in itertools.product(*map(range, extents)):
            found: list[Term] = []
            for coefficient, ref in terms:
                found += _scaled(coefficient, self.element(ref[0], coordinates(ref, place), ref[3]))
            if self._multiplied_out(self._sum(found)):
                return False
        return True

    def _multiplied_out(self, terms: Terms) -> Terms:
        """Terms times every sum that divides any of them, written out: they add up to nothing where the terms do, as no divisor is zero."""
        while (found := next((base for _, ref in terms for base, _ in _divisors(ref)), None)) is not None:
            self._step()
            powers = [sum(power for base, power in _divisors(ref) if base == found) for _, ref in terms]
            summands, most = self.element(found[0], found[1], found[3]), max(powers)
            multiplied: list[Term] = []
            for (coefficient, ref), power in zip(terms, powers, strict=True):
                factor, rest = multiply(self.universe, [(ref, 1), (found, power)], ()) if power else (1, ref)
                missing = self._times_power(((1, rest),), summands, Fraction(most - power))
                multiplied += _scaled(coefficient * factor, missing)
            terms = self._sum(multiplied)
        return terms

    def element(self, kernel: Kernel, at: tuple[int, ...], window: Window) -> Terms:
        """What a kernel denotes at one place, as terms over a scalar."""
        key = ("element", kernel.id, at, window)
        known: Any = self.universe.memo.get(key)
        if known is None:
            if key in self.open:
                return _itself(kernel, at, window)  # what multiplying gives back is as far apart as it gets
            self._step()
            self.open.add(key)
            known = self._written_out(kernel, at, window)
            self.open.discard(key)
            if len(known) > _TERMS:
                raise Budget(f"an element of more than {_TERMS} terms")
            self.universe.memo[key] = known
        return known  # type: ignore[no-any-return]

    def _step(self) -> None:
        self.universe.step()
        if self.universe.steps > self.limit:
            raise Budget("too many elements to compare one by one")

    def _written_out(self, kernel: Kernel, at: tuple[int, ...], window: Window) -> Terms:
        universe = self.universe
        match kernel.kind:
            case "iota":
                return constant(universe, at[0], ())
            case "literal":
                table = next((data for known, data in universe.tables if known is kernel), None)
                return _itself(kernel, at, window) if table is None else constant(universe, exact(table[at].item()), ())
            case "product":
                return self._product(kernel, at, window)
            case "sum":
                return self._sum([t for f in kernel.factors for t in _scaled(f[1], self._part(f, at))])
            case "function":
                return self._function(kernel, at)
            case "onehot":
                return self._one_hot(kernel, at, window)
            case "max" | "maximum":
                return self._maximum(kernel, at, window)
            case "apply":
                rows = sorted(kernel.factors, key=lambda factor: factor[1][0])
                values = [_scaled(factor[1][1], self._part(factor, at)) for factor in rows]
                name, *attributes = kernel.attributes
                return applied(universe, str(name), tuple(attributes), values, kernel.type, ())
            case _:  # an unknown, one, an infinity, a function of whole dims
                return _itself(kernel, at, window)

    def _part(self, factor: Factor, labels: Sequence[int]) -> Terms:
        """A factor where the labels of its kernel have these values."""
        return self.element(factor[0], _placed(factor, labels), factor[2])

    def _product(self, kernel: Kernel, at: tuple[int, ...], window: Window) -> Terms:
        found: list[Term] = []
        for labels in _summands(at, window):
            total: Terms = constant(self.universe, 1, ())
            for factor in sorted(kernel.factors, key=lambda factor: not factor[0].truth):
                total = self._times_power(total, self._part(factor, labels), factor[1])
                if not total:
                    break
            found += total
        return self._sum(found)

    def _times_power(self, total: Terms, value: Terms, power: Any) -> Terms:
        if power == 1 or (power > 0 and power.denominator == 1):
            for _ in range(int(power)):
                total = self._times(total, value)
            return total
        return self._times(total, powered(self.universe, value, power, ()))

    def _times(self, a: Terms, b: Terms) -> Terms:
        """The product, multiplied out."""
        if len(a) * len(b) > _TERMS:
            raise Budget(f"a product of more than {_TERMS} terms")
        out: list[Term] = []
        for c, first in a:
            for d, second in b:
                factor, ref = multiply(self.universe, [(first, 1), (second, 1)], ())
                if factor:
                    out.append((factor * c * d, ref))
        return self._sum(out)

    def _function(self, kernel: Kernel, at: tuple[int, ...]) -> Terms:
        universe, base = self.universe, kernel.factors[0]
        argument = _scaled(base[1], self._part(base, at))
        if kernel.name == "exp":
            return exponential(universe, argument, ())
        if kernel.name == "log":
            return logarithm(universe, argument, ())
        if kernel.name in _PLAIN and all(ref[0].kind == "one" for _, ref in argument):
            value = Fraction(sum(coefficient for coefficient, _ in argument))
            return constant(universe, _PLAIN[kernel.name](value, *kernel.attributes), ())
        if kernel.name not in _TRUTHS:
            return applied(universe, kernel.name, kernel.attributes, [argument], kernel.type, ())
        coefficient, ref = close(universe, argument, ())
        result = elementwise(universe, kernel.name, kernel.attributes, coefficient, ref)
        result[0].truth = True
        return ((1, result),)

    def _one_hot(self, kernel: Kernel, at: tuple[int, ...], window: Window) -> Terms:
        index = self._part(kernel.factors[0], at[:-1])
        coefficient, ref = close(self.universe, index, ())
        if ref[0].kind == "one":
            return constant(self.universe, 1, ()) if coefficient == at[-1] else ()
        if coefficient != 1:
            return _itself(kernel, at, window)
        return ((1, (self.universe.one_hot(ref[0], ref[3]), (*ref[1], at[-1]), (), ())),)

    def _maximum(self, kernel: Kernel, at: tuple[int, ...], window: Window) -> Terms:
        places = _summands(at, window)
        rows = [_scaled(factor[1], self._part(factor, labels)) for labels in places for factor in kernel.factors]
        return larger(self.universe, rows, ())

    def _sum(self, terms: list[Term]) -> Terms:
        """Like terms gathered; no windows are joined here, as they could be in several ways."""
        found: dict[Ref, Number] = {}
        for coefficient, ref in terms:
            if ref[3] and ref[0].kind == "product":
                for inner, part in self.element(ref[0], ref[1], ref[3]):
                    found[part] = found.get(part, 0) + coefficient * inner
            else:
                found[ref] = found.get(ref, 0) + coefficient
        return tuple(sorted(((c, ref) for ref, c in found.items() if c), key=order))


def _divisors(ref: Ref) -> Iterator[tuple[Ref, int]]:
    """The sums by whole powers of which a scalar is divided, each where it divides, and the powers; none of what divides the summands of a sum."""
    if ref[0].kind == "product" and not ref[3]:
        for factor in ref[0].factors:
            part, power, window, _, _ = factor
            if part.kind == "sum" and power < 0 and power.denominator == 1:
                yield (part, _placed(factor, ref[1]), (), window), -int(power)


def _placed(factor: Factor, labels: Sequence[int]) -> tuple[int, ...]:
    """Where a factor is read for these labels of its kernel."""
    _, _, _, base, steps = factor
    at = list(base)
    for axis, label, stride in steps:
        at[axis] += labels[label] * stride
    return tuple(at)


def coordinates(ref: Ref, place: Sequence[int]) -> tuple[int, ...]:
    """Where a reference looks at for an element."""
    at = list(ref[1])
    for digits, index in zip(ref[2], place, strict=True):
        rest = index
        for axis, stride, size in reversed(digits):
            rest, digit = divmod(rest, size)
            if axis >= 0:
                at[axis] += digit * stride
    return tuple(at)


def _itself(kernel: Kernel, at: tuple[int, ...], window: Window) -> Terms:
    return ((1, (kernel, at, (), window)),)


def _summands(at: tuple[int, ...], window: Window) -> list[tuple[int, ...]]:
    """The values of all labels of a kernel at one place, over the window of its reduced ones."""
    if prod(high - low for low, high in window) > _WINDOW:
        raise Budget("a sum of too many elements to write out")
    return [(*at, *place) for place in itertools.product(*(range(low, high) for low, high in window))]


def _scaled(number: Number, terms: Terms) -> Terms:
    if number == 1:
        return terms
    return tuple((number * coefficient, ref) for coefficient, ref in terms) if number else ()


# -- the question to numbers


def _drawn(universe: Universe, draw: int) -> _Drawn:
    """The numbers of a draw, with what was computed from them before; begun anew where that is much."""
    key = ("drawn", draw)
    found: _Drawn | None = universe.cases.get(key)
    if found is None or found.size() > _KEPT:
        found = universe.cases[key] = _Drawn(universe, draw)
    return found


class _Drawn(Denotation):
    """Numbers for every leaf, drawn by its name, but for tables that are written down; rounding does not matter to them, so sums may be of any size."""

    most = inf
    largest = _LARGEST

    def __init__(self, universe: Universe, draw: int) -> None:
        super().__init__({}, _invented)
        self._written = universe.tables
        self._draw = draw
        self._numbers: dict[Hashable, Any] = {}

    def numbers(self, value: NormalValue) -> Any:
        """The elements of a value; None where they cannot be had."""
        key = value.key()
        if key not in self._numbers:
            try:
                self._numbers[key] = self.value(value)
            except (Unsupported, AssertionError):
                self._numbers[key] = None
        return self._numbers[key]

    def _scale(self, kernel: Kernel) -> float:
        """Every other draw is small, as weights are, so that sums over a dim stay near one and their exponentials finite."""
        return 1.0 if self._draw % 2 else max(kernel.shape, default=1) ** 0.5

    def size(self) -> int:
        """How many numbers are kept."""
        return sum(array.size for kept in (self.memo, self._numbers) for array in kept.values() if array is not None)

    def _table(self, kernel: Kernel) -> Any:
        written = None if kernel.id in self.tables else next((data for of, data in self._written if of is kernel), None)
        if written is not None:
            self.tables = {**self.tables, kernel.id: written}
        if kernel.id not in self.tables:
            if prod(kernel.shape) > _DRAWN:
                raise Unsupported("an unknown too large to draw")
            draw = np.random.default_rng(_seed(kernel.name, self._draw))
            low, high = kernel.range or (0, 2)
            start = low if low > -UNBOUNDED // 2 else min(0, high - 1)
            whole = kernel.type != "float"
            self.tables = {
                **self.tables,
                kernel.id: draw.integers(start, min(high, start + _SPREAD), kernel.shape)
                if whole
                else draw.uniform(0.5, 1.5, kernel.shape) / self._scale(kernel),
            }
        return super()._table(kernel)

    def _compute(self, kernel: Kernel, window: Window, index: list[Any]) -> Any:
        """A function of whole dims is an unknown of its own, as it is where elements are written out."""
        if kernel.kind != "opaque" or kernel.name == "argsort":
            return super()._compute(kernel, window, index)
        if prod(kernel.shape) > _DRAWN:
            raise Unsupported("a function of too many elements to draw")
        table = np.random.default_rng(_seed(kernel.id, window, self._draw)).uniform(0.5, 1.5, kernel.shape)
        return table[tuple(index)] if index else table


def _invented(name: str, attributes: tuple[Any, ...], arrays: Sequence[Any]) -> Any:
    phase = _seed(name, attributes) % 1000 / 1000
    total = sum((0.7 + 0.1 * index) * np.asarray(array) for index, array in enumerate(arrays))
    return np.sin(total + phase) + 1.5


def _seed(*key: Any) -> int:
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=8).digest(), "little")
