"""Products: sums over reduced digits of products of powers, brought to a normal form before the kernel is built.

Matrix products, means, divisions, softmax and attention all become this one construct.  Nested products are flattened (so that association and
order do not matter), equal factors gather their powers, and equalities of indices are solved.  Side condition: what is divided by is not zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

from graphguard.relations.algebra import Unsupported
from graphguard.relations.rewrite.engine import settled_product
from graphguard.relations.rewrite.rule import Log, rule
from graphguard.relations.terms.building import build
from graphguard.relations.terms.kernels import (
    UNBOUNDED,
    Digit,
    Digits,
    Expression,
    Factor,
    Kernel,
    Number,
    Ref,
    Universe,
    Window,
)
from graphguard.relations.terms.parts import Part
from graphguard.relations.terms.windows import joined, refine

LARGEST_EXPONENT: Final = 1 << 16  # of a number, whose power is written down
_WHOLE: Final = frozenset(("leaf", "sum", "max", "onehot"))  # kinds that are never opened
_COUNTED: Final = frozenset(("number", "iota"))
INLINED: Final = 24  # a product of more factors stays one factor of the products it enters
POWERS: Final = 4  # whole powers of a reduced product up to this are written out


class Product:
    """A product under construction: parts over digits, some of them summed."""

    __slots__ = ("coefficient", "deferred", "dims", "keep_steps", "log", "parts", "reduced", "sizes", "universe")

    def __init__(self, universe: Universe, sizes: list[int], dims: list[list[int]], reduced: set[int]) -> None:
        self.universe = universe
        self.log: Log | None = universe.log
        self.sizes = sizes
        self.dims = dims
        self.reduced = reduced
        self.parts: list[Part] = []
        self.deferred: list[tuple[Kernel, Window, list[int], list[Expression]]] = []
        self.coefficient: Number = 1
        self.keep_steps = False

    def push(
        self, kernel: Kernel, power: Number, window: Window, offsets: list[int], expressions: list[Expression]
    ) -> None:
        """Multiply by a power of a kernel; products are opened where that is exact."""
        if kernel.kind == "one":
            return
        if kernel.kind == "function" and kernel.name == "abs" and power % 2 == 0:
            self._push_size(kernel, power, window, offsets, expressions)
        elif kernel.kind != "product" or len(kernel.factors) > INLINED:
            self.parts.append(Part(kernel, power, window, offsets, expressions))
        elif kernel.reduced and power == 1:
            self.deferred.append((kernel, window, offsets, expressions))
        elif not kernel.reduced and (power.denominator == 1 or _positive(kernel)):
            self.include(kernel.factors, len(kernel.shape), power, window, offsets, expressions)
        elif power.denominator == 1 and 1 < power <= POWERS:
            for _ in range(int(power)):
                self.push(kernel, 1, window, list(offsets), list(expressions))
        elif kernel.reduced and power.denominator == 1:
            self._push_reduced(kernel, power, window, offsets, expressions)
        else:
            self.parts.append(Part(kernel, power, window, offsets, expressions))

    def _push_size(
        self, kernel: Kernel, power: Number, window: Window, offsets: list[int], expressions: list[Expression]
    ) -> None:
        """abs(c x)^n is c^n x^n where n is even."""
        inner, coefficient, own, base, steps = kernel.factors[0]
        self.coefficient *= Fraction(coefficient) ** int(power)
        self.include([(inner, 1, own, base, steps)], len(kernel.shape), power, window, offsets, expressions)

    def include(
        self,
        factors: Iterable[Factor],
        free: int,
        power: Number,
        window: Window,
        offsets: list[int],
        expressions: list[Expression],
        only: set[int] | None = None,
        raw: bool = False,
    ) -> None:
        """Multiply by factors over labels, whose reduced labels (those in ``only``) become summed digits; ``raw`` opens none."""
        places: list[list[tuple[int, int]]] = [[] for _ in range(free)]
        for label, digit, stride in expressions:
            places[label].append((digit, stride))
        origins = list(offsets)
        for index, (low, high) in enumerate(window):
            origins.append(low)
            if only is not None and free + index not in only:
                places.append([])  # of a label that none of the factors touches
                continue
            places.append([(len(self.sizes), 1)])
            self.reduced.add(len(self.sizes))
            self.sizes.append(high - low)
        for kernel, own, inner, base, steps in factors:
            moved, composed = compose(base, steps, origins, places)
            if raw:
                self.parts.append(Part(kernel, own, inner, moved, composed))
            else:
                self.push(kernel, own if power == 1 else own * power, inner, moved, composed)

    def _push_reduced(
        self, kernel: Kernel, power: Number, window: Window, offsets: list[int], expressions: list[Expression]
    ) -> None:
        """(a * sum b * sum c)^-n is a^-n * (sum b)^-n * (sum c)^-n: take apart what no sum ties together."""
        free = len(kernel.shape)
        groups = _tied(kernel, free)
        bound = {index for group, _ in groups for index in group}
        outside = [factor for index, factor in enumerate(kernel.factors) if index not in bound]
        found: list[tuple[Number, Part]] = []
        for group, labels in groups if outside or len(groups) > 1 else ():
            summed = self._summed(kernel, (group, labels), window, offsets, expressions)
            if summed is None:
                found = []
                break
            found.append(summed)
        if not found:
            self.parts.append(Part(kernel, power, window, offsets, expressions))
            return
        self.include(outside, free, power, (), offsets, expressions)
        for coefficient, part in found:
            self.coefficient *= Fraction(coefficient) ** int(power) if coefficient != 1 else 1
            part.payload = power
            self.parts.append(part)

    def _summed(
        self,
        kernel: Kernel,
        bound: tuple[tuple[int, ...], frozenset[int]],
        window: Window,
        offsets: list[int],
        expressions: list[Expression],
    ) -> tuple[Number, Part] | None:
        """The sum of some factors of a reduced product over some labels where this product looks, as a coefficient and a factor; None where it has no simple form.

        It is built over the digits in use, not over the whole kernel: what a mask leaves there may be a window of another kernel.
        """
        digits = sorted({digit for _, digit, _ in expressions})
        place = {digit: index for index, digit in enumerate(digits)}
        steps = tuple([(label, place[digit], stride) for label, digit, stride in expressions])
        sizes = [self.sizes[digit] for digit in digits]
        indices, labels = bound
        key = ("summed", kernel.id, indices, window, tuple(offsets), steps, tuple(sizes))
        known: Any = self.universe.memo.get(key)
        if known is None:
            product = Product(self.universe, sizes, [[index] for index in range(len(sizes))], set())
            factors = [kernel.factors[index] for index in indices]
            product.include(factors, len(kernel.shape), 1, window, list(offsets), list(steps), only=set(labels))
            known = self.universe.memo[key] = product.finish()
        coefficient, (inner, base, dims, inner_window) = known
        composed = expressions_over(dims, digits)
        if coefficient == 0 or composed is None:
            return None
        return coefficient, Part(inner, 1, inner_window, list(base), composed)

    def finish(self) -> tuple[Number, Ref]:
        """The coefficient and the reference; coefficient 0 when the product vanishes."""
        self.open_deferred()
        if not settled_product(self):
            return 0, _nothing(self)
        if self.reduced:
            self._count_unused()
        return self.coefficient, self._reference()

    def gather(self) -> None:
        """Join equal factors, which rules expect of a product that they look at."""
        if self.reduced:
            self._drop_units()
        self._gather()

    def open_deferred(self) -> None:
        """Open the sums among the factors; beside quotients of sums they are first given the form in which a quotient cancels."""
        while self.deferred:
            waiting, self.deferred = self.deferred, []
            quotients = any(part.kernel.kind == "product" and part.payload < 0 for part in self.parts) or (
                len(waiting) > 1 and any(has_divisor(kernel) for kernel, *_ in waiting)
            )
            for kernel, window, offsets, expressions in waiting:
                if quotients:
                    self._push_reduced(kernel, 1, window, offsets, expressions)
                else:
                    self.include(kernel.factors, len(kernel.shape), 1, window, offsets, expressions)

    def _drop_units(self) -> None:
        unit = {digit for digit in self.reduced if self.sizes[digit] == 1}
        if unit:
            self.reduced -= unit
            for part in self.parts:
                part.expressions = [step for step in part.expressions if step[1] not in unit]

    def _gather(self) -> None:
        """Join equal factors; a truth value is its own square, a number's whole power is a coefficient."""
        parts = self.parts
        special = False
        for part in parts:
            kernel = part.kernel
            special = special or kernel.truth or kernel.kind in _COUNTED
            if 1 in kernel.shape:
                shape = kernel.shape
                part.expressions = sorted([step for step in part.expressions if shape[step[0]] != 1])
            elif len(part.expressions) > 1:
                part.expressions = sorted(part.expressions)
        if _repeat(parts):
            parts = _equal_joined(parts)
        if not special:
            self.parts = [part for part in parts if part.payload]
            return
        self.parts = []
        for part in parts:
            kernel, kind = part.kernel, part.kernel.kind
            if kernel.truth and part.payload > 1:
                part.payload = 1
            if kind == "number":
                whole = part.payload.numerator // part.payload.denominator
                if whole:
                    self.coefficient *= Fraction(int(kernel.name)) ** whole
                    part.payload -= whole
            elif kind == "iota" and not part.expressions and part.payload > 0 and part.payload.denominator == 1:
                self.coefficient *= part.offsets[0] ** int(part.payload)  # an index at one place is a number
                continue
            if part.payload != 0:
                self.parts.append(part)

    def _count_unused(self) -> None:
        used = {digit for part in self.parts for _, digit, _ in part.expressions}
        for digit in list(self.reduced):
            if digit not in used:
                if self.sizes[digit] > UNBOUNDED // 4:
                    raise Unsupported("a sum over all integers")
                self.coefficient *= self.sizes[digit]
                self.reduced.discard(digit)

    def _reference(self) -> Ref:
        parts = self.parts
        if not parts:
            return _nothing(self)
        if len(parts) == 1 and not self.reduced and parts[0].payload == 1:
            direct = self._direct(parts[0])
            if direct is not None:
                return direct
        kernel = build(self.universe, "product", (), parts, self.sizes, self.dims, self.reduced)
        if kernel[0].kind == "product" and not kernel[0].truth:
            kernel[0].truth = not kernel[0].reduced and all(f[0].truth and f[1] == 1 for f in kernel[0].factors)
        return kernel

    def _direct(self, part: Part) -> Ref | None:
        where: dict[int, tuple[int, int]] = {}
        for axis, digit, stride in part.expressions:
            if digit in where:
                return None
            where[digit] = (axis, stride)
        dims = tuple(
            joined([(*where.get(digit, (-1, 0)), self.sizes[digit]) for digit in digits]) for digits in self.dims
        )
        return (part.kernel, tuple(part.offsets), dims, part.window)


def expressions_over(dims: tuple[Digits, ...], digits: list[int]) -> list[Expression] | None:
    """How the dims of a reference, each of which is one of the digits, move along its axes; None where one is several digits of its own."""
    if any(len(radix) > 1 for radix in dims):
        return None
    steps = zip(digits, dims, strict=True)
    return sorted((axis, digit, stride) for digit, radix in steps for axis, stride, _ in radix if axis >= 0)


def _repeat(parts: list[Part]) -> bool:
    """Whether any two factors are of one kernel."""
    if len(parts) == 2:
        return parts[0].kernel is parts[1].kernel
    return len(parts) > 1 and len({part.kernel for part in parts}) < len(parts)


def _equal_joined(parts: list[Part]) -> list[Part]:
    """Equal factors as one, with the sum of their powers."""
    seen: dict[tuple[object, ...], Part] = {}
    for part in parts:
        key = (part.kernel, tuple(part.offsets), tuple(part.expressions), part.window)
        old = seen.setdefault(key, part)
        if old is not part:
            old.payload += part.payload
    return list(seen.values())


def has_divisor(kernel: Kernel) -> bool:
    """Whether a product has a quotient by a sum."""
    return any(factor[0].kind == "product" and factor[1] < 0 for factor in kernel.factors)


def compose(
    base: tuple[int, ...], steps: tuple[Expression, ...], origins: list[int], places: list[list[tuple[int, int]]]
) -> tuple[list[int], list[Expression]]:
    """A factor's map onto labels, followed by the labels' map onto digits: where each label starts, and the digits with their strides that move it."""
    moved = list(base)
    composed: list[Expression] = []
    before, apart = -1, True  # whether every axis is moved by one digit
    for axis, label, stride in steps:
        moved[axis] += origins[label] * stride
        digits = places[label]
        apart = apart and axis > before and len(digits) < 2
        before = axis
        for digit, step in digits:
            composed.append((axis, digit, step * stride))
    if apart or len({step[:2] for step in composed}) == len(composed):
        return moved, composed
    total: dict[tuple[int, int], int] = {}
    for axis, digit, stride in composed:
        total[axis, digit] = total.get((axis, digit), 0) + stride
    return moved, [(axis, digit, stride) for (axis, digit), stride in total.items() if stride]


def _nothing(product: Product) -> Ref:
    dims: list[tuple[Digit, ...]] = [joined([(-1, 0, product.sizes[d]) for d in digits]) for digits in product.dims]
    return (product.universe.one, (), tuple(dims), ())


def _positive(kernel: Kernel) -> bool:
    """Whether every factor is known to be non-negative, so that fractional powers distribute."""
    for factor in kernel.factors:
        power = factor[1]
        root = isinstance(power, Fraction) and power.denominator % 2 == 0
        if not (root or factor[0].kind == "number" or (factor[0].kind == "function" and factor[0].name == "exp")):
            return False
    return True


def _tied(kernel: Kernel, free: int) -> list[tuple[tuple[int, ...], frozenset[int]]]:
    """Factors that reduced labels tie together, each group with its labels; labels that no factor has are the first group's."""
    groups: list[tuple[set[int], set[int]]] = []
    for index, factor in enumerate(kernel.factors):
        labels = {label for _, label, _ in factor[4] if label >= free}
        if labels:
            tied = [group for group in groups if group[1] & labels]
            groups = [group for group in groups if not group[1] & labels]
            groups.append(({index}.union(*(one for one, _ in tied)), labels.union(*(other for _, other in tied))))
    if groups:
        every = set(range(free, free + len(kernel.reduced)))
        groups[0][1].update(every.difference(*(labels for _, labels in groups)))
    return [(tuple(sorted(indices)), frozenset(labels)) for indices, labels in groups]


@rule(
    "association",
    "products",
    "nested products are one product, `f^a f^b` = `f^(a + b)`, and `sum of c f` = `c sum of f`",
    "`(x @ w) @ v` = `x @ (w @ v)`",
    "multiply",
)
def multiply(
    universe: Universe, items: list[tuple[Ref, Number]], extents: tuple[int, ...], summed: tuple[int, ...] = ()
) -> tuple[Number, Ref]:
    """The product of powers of references over a tensor of the given extents, summed over some dims, which are dropped."""
    sizes, dims, used = refine([ref for ref, _ in items], extents)
    if summed:
        reduced = {digit for dim in summed for digit in dims[dim]}
        dims = [digits for dim, digits in enumerate(dims) if dim not in summed]
    else:
        reduced = set()
    product = Product(universe, sizes, dims, reduced)
    for ((kernel, offsets, _, window), power), steps in zip(items, used, strict=True):
        if kernel.kind in _WHOLE:
            product.parts.append(Part(kernel, power, window, list(offsets), steps))
        else:
            product.push(kernel, power, window, list(offsets), steps)
    return product.finish()


@lru_cache(maxsize=4096)
def factorised(value: int) -> tuple[tuple[int, int], ...]:
    """Prime factors of a positive integer with their exponents; a large cofactor is taken as it is."""
    out = []
    divisor = 2
    while divisor * divisor <= value and divisor < 2000:
        count = 0
        while value % divisor == 0:
            value //= divisor
            count += 1
        if count:
            out.append((divisor, count))
        divisor += 1 if divisor == 2 else 2
    if value > 1:
        out.append((value, 1))
    return tuple(out)


def number_power(
    universe: Universe, value: Number, power: Number, extents: tuple[int, ...]
) -> tuple[Number, list[tuple[Ref, Number]]]:
    """A positive number to a rational power, as a coefficient and powers of primes."""
    coefficient, roots = _roots(value, power)
    dims = tuple(((-1, 0, size),) if size != 1 else () for size in extents)
    return coefficient, [((universe.prime(prime), (), dims, ()), exponent) for prime, exponent in roots]


@lru_cache(maxsize=4096)
def _roots(value: Number, power: Number) -> tuple[Number, tuple[tuple[int, Number], ...]]:
    """A positive number to a rational power, as a coefficient and primes with exponents between 0 and 1."""
    coefficient: Number = 1
    roots: list[tuple[int, Number]] = []
    for base, sign in ((value.numerator, 1), (value.denominator, -1)):
        for prime, count in factorised(base):
            exponent = Fraction(power) * count * sign
            whole = exponent.numerator // exponent.denominator
            coefficient *= Fraction(prime) ** whole
            if exponent != whole:
                roots.append((prime, exponent - whole))
    return coefficient, tuple(roots)
