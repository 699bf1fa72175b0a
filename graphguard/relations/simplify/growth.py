"""Growth: exponentials of an index, as the decay of what a linear attention remembers, are read from one origin.

``exp(a (i + 8))`` is ``exp(a i) exp(a)^8`` and ``exp(a (i - j))`` is ``exp(a i) exp(a j)^-1``: a rank that counts its tokens from its own first one, and
carries a state from rank to rank, has what the specification has in one table.  Where another factor says which index is 0 (it ends somewhere, or is a mask on
positions) an exponential has its origin there, and one index; where none does, all indices are one, so that a table of ``exp(a (i - j))`` is a function of the
distance, and the place at which it begins is a place in it.
"""

from __future__ import annotations

from collections.abc import Hashable
from fractions import Fraction
from math import floor, gcd, lcm
from typing import Any

from graphguard.relations.algebra import Unsupported
from graphguard.relations.functions.exponentials import exponential
from graphguard.relations.rewrite.rule import Outcome, rule
from graphguard.relations.sums.linear import close, reopened
from graphguard.relations.sums.products import LARGEST_EXPONENT, Product, expressions_over, number_power
from graphguard.relations.terms.building import joined_digits
from graphguard.relations.terms.domains import Domain
from graphguard.relations.terms.kernels import Expression, Kernel, Number, Window, ratio
from graphguard.relations.terms.orientation import grows_along
from graphguard.relations.terms.parts import Part


class _Growth:
    """Exponentials of one rate: the exponent, as a multiple of every digit and a rest, in units of the rate."""

    __slots__ = ("axis", "by_digit", "kernel", "offsets", "others", "parts", "rest", "window")

    def __init__(self, part: Part, axis: int) -> None:
        self.kernel: Kernel = part.kernel
        self.window: Window = part.window
        self.axis = axis
        self.offsets = list(part.offsets)
        self.offsets[axis] = 0
        self.others: list[Expression] = sorted(step for step in part.expressions if step[0] != axis)
        self.by_digit: dict[int, Fraction] = {}
        self.rest = Fraction(0)
        self.parts: list[Part] = []

    def key(self) -> Hashable:
        return (self.kernel, self.window, tuple(self.offsets), tuple(self.others))

    def take(self, part: Part) -> None:
        """Multiply by a part of the same rate."""
        power = Fraction(part.payload)
        self.parts.append(part)
        self.rest += power * part.offsets[self.axis]
        for axis, digit, stride in part.expressions:
            if axis == self.axis:
                self.by_digit[digit] = self.by_digit.get(digit, Fraction(0)) + power * stride

    def is_whole(self) -> bool:
        """Whether all exponents are whole multiples of the rate."""
        return all(number.denominator == 1 for number in (self.rest, *self.by_digit.values()))

    def along(self, strides: dict[int, int], power: Fraction) -> Part:
        """The exponential of ``power`` times an index, which starts at 0."""
        steps = [*self.others, *((self.axis, digit, stride) for digit, stride in strides.items())]
        return Part(self.kernel, _number(power), self.window, list(self.offsets), sorted(steps))


@rule(
    "growth",
    "products",
    "`exp(a (i + 8))` = `exp(a i) exp(a)^8`",
    "a decay table whose second half counts from 0 and is multiplied by `exp(-a) ** 4`",
    "product",
)
def settle_growth(product: Product) -> Outcome:
    """Give the exponentials of indices among the factors of a product their origins."""
    if all(grows_along(part.kernel) is None for part in product.parts):
        return Outcome.SAME
    growths: dict[Hashable, _Growth] = {}
    others: list[Part] = []
    for part in product.parts:
        axis = grows_along(part.kernel)
        if axis is None:
            others.append(part)
            continue
        one = _Growth(part, axis)
        growths.setdefault(one.key(), one).take(part)
    units: dict[Hashable, tuple[Number, Part]] = {}
    for key, growth in list(growths.items()):
        unit = _unit(product, growth)
        if unit is None or (unit[0] < 0 and not growth.is_whole()):
            others += growth.parts
            del growths[key]
        else:
            units[key] = unit
    held = _held_digits(product, others, list(growths.values()))
    ends = {digit for row in held for digit in row}
    free: list[tuple[_Growth, Part]] = []
    bound: list[tuple[_Growth, Part]] = []
    for key, growth in growths.items():
        for strides, power in _held_parts(growth, held):
            bound.append((growth, growth.along(strides, power)))
        loose = {digit: c for digit, c in growth.by_digit.items() if c and digit not in ends}
        if loose:
            strides, power = _common(loose)
            part = growth.along(strides, power)
            others = _absorbed(growth, units[key], others)
            start = floor(growth.rest / power)
            part.offsets[growth.axis] = start
            growth.rest -= start * power
            free.append((growth, part))
    _place(product, others, bound, free)
    product.parts = [*others, *(part for _, part in bound), *(part for _, part in free)]
    for key, growth in growths.items():
        if growth.rest:
            _raise(product, units[key], growth.rest)
    product.gather()
    return Outcome.CHANGED


def _held_digits(product: Product, others: list[Part], growths: list[_Growth]) -> list[dict[int, int]]:
    """Digits of which other factors say which index is 0; such as these see as one digit stand together, each with its stride in it."""
    copies = [part.copy() for part in others]
    # what a rate differs along ends as any tensor does
    copies += [Part(one.kernel, 1, one.window, list(one.offsets), list(one.others)) for one in growths if one.others]
    domain = Domain(copies, product.sizes, {})
    return [dict(row) for row in joined_digits(copies, domain, product.reduced)]


def _held_parts(growth: _Growth, held: list[dict[int, int]]) -> list[tuple[dict[int, int], Fraction]]:
    """The exponent along held digits: of digits that are one, as a multiple of that one where it is one."""
    out: list[tuple[dict[int, int], Fraction]] = []
    for row in held:
        mine = {digit: growth.by_digit[digit] for digit in row if growth.by_digit.get(digit)}
        if not mine:
            continue
        first = next(iter(mine))
        power = mine[first] / row[first]
        if len(mine) == len(row) and all(c == power * row[digit] for digit, c in mine.items()):
            out.append((dict(row), power))
        else:
            out += (({digit: 1}, c) for digit, c in mine.items())
    return out


def _common(coefficients: dict[int, Fraction]) -> tuple[dict[int, int], Fraction]:
    """Whole numbers without a common divisor, and the positive number that all of them are multiplied by."""
    below = lcm(*(c.denominator for c in coefficients.values()))
    whole = {digit: int(c * below) for digit, c in coefficients.items()}
    shared = gcd(*whole.values())
    return {digit: c // shared for digit, c in whole.items()}, Fraction(shared, below)


def _place(
    product: Product, others: list[Part], bound: list[tuple[_Growth, Part]], free: list[tuple[_Growth, Part]]
) -> None:
    """Let every exponential begin where its digits do, in the order in which construction runs them."""
    moved = [*bound, *free]
    starts: list[int] = []
    for index, ((growth, part), seen) in enumerate(zip(moved, _placed(product, others, moved), strict=True)):
        axis = growth.axis
        starts.append(seen.offsets[axis])
        start = seen.offsets[axis]
        growth.rest += Fraction(part.payload) * start
        if index < len(bound) and _runs_back(seen, axis):
            part.payload = -part.payload
            part.expressions = [(a, d, -s if a == axis else s) for a, d, s in part.expressions]
            part.offsets[axis] = start - part.offsets[axis]
        else:
            part.offsets[axis] -= start
    seen_again = _placed(product, others, moved)
    for index, (growth, part) in enumerate(free, len(bound)):
        if seen_again[index].offsets[
            growth.axis
        ]:  # its digits begin where it lets them: there is nothing to take out of it
            part.offsets[growth.axis] += starts[index]
            growth.rest -= Fraction(part.payload) * starts[index]


def _placed(product: Product, others: list[Part], moved: list[tuple[_Growth, Part]]) -> list[Part]:
    """The exponentials as construction places them."""
    copies = [part.copy() for part in (*others, *(part for _, part in moved))]
    Domain(copies, product.sizes, {})
    return copies[len(others) :]


def _runs_back(part: Part, axis: int) -> bool:
    return all(stride < 0 for a, _, stride in part.expressions if a == axis)


def _absorbed(growth: _Growth, unit: tuple[Number, Part], others: list[Part]) -> list[Part]:
    """The other factors without powers of the unit, which become a part of the exponent."""
    coefficient, one = unit
    if coefficient != 1 or one.kernel.kind == "one":
        return others
    kept = []
    for part in others:
        place = (part.kernel, part.window, part.offsets, sorted(part.expressions))
        if place == (one.kernel, one.window, one.offsets, one.expressions):
            growth.rest += Fraction(part.payload)
        else:
            kept.append(part)
    return kept


def _unit(product: Product, growth: _Growth) -> tuple[Number, Part] | None:
    """The exponential of the rate itself, as a coefficient and a factor; None where it has no simple form."""
    universe = product.universe
    inner, factor, window, _, _ = growth.kernel.factors[0]
    digits = sorted({digit for _, digit, _ in growth.others})
    place = {digit: index for index, digit in enumerate(digits)}
    steps = [(axis, place[digit], stride) for axis, digit, stride in growth.others]
    sizes = [product.sizes[digit] for digit in digits]
    key = ("unit", growth.kernel.id, growth.window, tuple(growth.offsets), tuple(steps), tuple(sizes))
    known: Any = universe.memo.get(key, ())
    if known == ():
        rate = Product(universe, sizes, [[index] for index in range(len(sizes))], set())
        if inner.kind != "iota":
            kept = [one for one in inner.factors if one[0].kind != "iota"]
            rate.include(kept, len(inner.shape), 1, window, list(growth.offsets), steps)
        coefficient, ref = rate.finish()
        extents = tuple(sizes)
        rates = reopened(universe, coefficient * factor, ref)
        terms = exponential(universe, rates, extents)
        known = universe.memo[key] = close(universe, terms, extents) if terms else None
    if known is None:
        return None
    coefficient, (kernel, base, dims, reduced) = known
    composed = expressions_over(dims, digits)
    if composed is None or not coefficient:
        return None
    return coefficient, Part(kernel, 1, reduced, list(base), composed)


def _raise(product: Product, unit: tuple[Number, Part], power: Fraction) -> None:
    """Multiply by a power of a unit."""
    coefficient, part = unit
    if coefficient != 1 and abs(power) > LARGEST_EXPONENT:
        raise Unsupported("a very large power of a number")
    if power.denominator == 1:
        product.coefficient *= Fraction(coefficient) ** int(power)
    else:
        more, roots = number_power(product.universe, coefficient, power, ())
        product.coefficient *= more
        product.parts += [Part(kernel, exponent, (), [], []) for (kernel, _, _, _), exponent in roots]
    product.push(part.kernel, _number(power), part.window, list(part.offsets), list(part.expressions))


def _number(value: Fraction) -> Number:
    """The same number, an int where it is one."""
    return value.numerator if value.denominator == 1 else ratio(value)
