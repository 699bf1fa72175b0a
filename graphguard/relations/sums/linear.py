"""Linear combinations of references: what a tensor is, on one piece of its domain.

Sums, differences, scalings, means and reductions over ranks live here.  Normalisation gathers like terms and joins windows of one reduction,
so a sum over ranks of partial sums is the whole sum, whatever the order and the split.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import floor, gcd, lcm
from typing import Any, Final

from graphguard.ir.literals import meant
from graphguard.relations.algebra import Unsupported
from graphguard.relations.rewrite.engine import added, first
from graphguard.relations.rewrite.rule import rule
from graphguard.relations.sums.products import multiply, number_power
from graphguard.relations.terms.building import build
from graphguard.relations.terms.kernels import (
    UNBOUNDED,
    Budget,
    Expression,
    Kernel,
    Number,
    Ref,
    Term,
    Terms,
    Universe,
    Window,
    order,
    quotient,
    ratio,
    times_number,
)
from graphguard.relations.terms.parts import Part
from graphguard.relations.terms.permutations import line_of, permuted
from graphguard.relations.terms.windows import joined, refine, repeat, through

_TERMS: Final = 512
_POWERS: Final = 4  # of a sum that are written out
_SPREAD: Final = 64  # terms over which a mask or a look-up is distributed
_ROUNDS: Final = 16  # in which terms settle; most do in one


def constant(universe: Universe, value: Number, extents: tuple[int, ...]) -> Terms:
    """A known number everywhere."""
    return ((value, (universe.one, (), tuple(map(repeat, extents)), ())),) if value else ()


def normalise(universe: Universe, terms: list[Term], extents: tuple[int, ...]) -> Terms:
    """Like terms gathered, windows joined, integers folded, in canonical order."""
    if len(terms) == 1:
        coefficient, ref = terms[0]
        if coefficient == 0:
            return ()
        return fold(universe, terms, extents) if ref[0].kind == "iota" else (terms[0],)
    gathered: dict[Ref, Number] = {}
    for coefficient, ref in terms:
        known = gathered.get(ref)
        gathered[ref] = coefficient if known is None else known + coefficient
    items = [(coefficient, ref) for ref, coefficient in gathered.items() if coefficient]
    if len(items) > 1:
        if universe.iota in [ref[0] for _, ref in items]:
            items = list(fold(universe, items, extents))
        items = added(universe, items, extents)
    elif items and items[0][1][0].kind == "iota":
        items = list(fold(universe, items, extents))
    if len(items) > 1:
        items.sort(key=order)
        if len(items) > _TERMS:
            raise Budget(f"a sum of more than {_TERMS} different terms")
    return tuple(items)


def fold(universe: Universe, terms: list[Term], extents: tuple[int, ...]) -> Terms:
    """All index terms and the constant as one multiple of one affine index, plus what is left of the constant."""
    mine = [(c, ref) for c, ref in terms if ref[0].kind == "iota"]
    rest = [(c, ref) for c, ref in terms if ref[0].kind not in ("iota", "one")]
    start: Number = sum((c for c, ref in terms if ref[0].kind == "one"), start=Fraction(0))
    sizes, dims, used = refine([ref for _, ref in mine], extents)
    strides: dict[int, Number] = {}
    for (c, ref), steps in zip(mine, used, strict=True):
        start = start + c * ref[1][0]
        for _, digit, stride in steps:
            strides[digit] = strides.get(digit, 0) + c * stride
    live = {digit: Fraction(stride) for digit, stride in strides.items() if stride}
    if not live:
        return (*rest, *constant(universe, start, extents))
    bottom = 1
    for step in live.values():
        bottom = bottom * step.denominator // gcd(bottom, step.denominator)
    unit = Fraction(gcd(*(int(s * bottom) for s in live.values())), bottom)
    offset = floor(Fraction(start) / unit)
    left = start - unit * offset
    digits = tuple(
        joined([(0, int(live[d] / unit), sizes[d]) if d in live else (-1, 0, sizes[d]) for d in ds]) for ds in dims
    )
    whole = int(unit) if unit.denominator == 1 else unit
    return (*rest, (whole, (universe.iota, (offset,), digits, ())), *constant(universe, left, extents))


def scaled(universe: Universe, terms: Terms, factor: Number, extents: tuple[int, ...]) -> Terms:
    """Every coefficient times a number."""
    if factor == 1 or not terms:
        return terms
    if factor == 0:
        return ()
    factor = ratio(factor)
    out = [(factor if coefficient == 1 else coefficient * factor, ref) for coefficient, ref in terms]
    return normalise(universe, out, extents) if universe.iota in [ref[0] for _, ref in out] else tuple(out)


def close(universe: Universe, terms: Terms, extents: tuple[int, ...]) -> tuple[Number, Ref]:
    """The terms as a multiple of one reference: itself for one term, a sum kernel for several."""
    if not terms:
        return 0, (universe.one, (), tuple(map(repeat, extents)), ())
    if len(terms) == 1:
        return terms[0]
    key = ("closed", terms, extents)
    known: Any = universe.memo.get(key)
    if known is None:
        rest = _at_rest(universe, terms, extents)
        known = _closed_sum(universe, rest, extents) if len(rest) > 1 else close(universe, rest, extents)
        universe.memo[key] = known
    return known  # type: ignore[no-any-return]


def _at_rest(universe: Universe, terms: Terms, extents: tuple[int, ...]) -> Terms:
    """Terms, which other values may have cut, as they settle; of forms that settle to one another the least, and of those that never do the least of the first few."""
    fresh = settled(universe, terms, extents)
    if fresh is terms:
        return terms
    seen = [terms]
    terms = fresh
    while terms not in seen:
        if len(seen) == _ROUNDS:
            return min(seen[1:], key=_order)
        seen.append(terms)
        terms = settled(universe, terms, extents)
    return min(seen[seen.index(terms) :], key=_order)


def _order(terms: Terms) -> list[tuple[Any, ...]]:
    return [(ref[0].id, *ref[1:], coefficient) for coefficient, ref in terms]


@rule(
    "sums as factors",
    "sums",
    "a sum of several terms is a multiple of one expression, whose leading term is counted once",
    "`(2 * x + 2 * y).sin()` = `(2 * (x + y)).sin()`",
    "closed",
)
def _closed_sum(universe: Universe, terms: Terms, extents: tuple[int, ...]) -> Term:
    sizes, dims, used = refine([ref for _, ref in terms], extents)
    others = [term for term in terms if term[1][0].kind not in ("iota", "one")]
    mixed = len(others) > 0 and universe.iota in [ref[0] for _, ref in terms]
    lead = _lead(others if mixed else [term for term in terms if term[1][0].kind != "one"])
    if mixed and lead < 0:
        lead = -lead
    parts = []
    for (coefficient, ref), steps in zip(terms, used, strict=True):
        parts.append(Part(ref[0], quotient(coefficient, lead), ref[3], list(ref[1]), steps))
    return lead, build(universe, "sum", (), _with_one_index(parts) if mixed else parts, sizes, dims, set())


def _lead(terms: Sequence[Term]) -> Number:
    """The coefficient of the term that leads: of several of one kernel, one that all shards of it have."""
    first = min([ref[0].id for _, ref in terms])
    leading = [term for term in terms if term[1][0].id == first]
    return (min(leading, key=_leading) if len(leading) > 1 else leading[0])[0]


def _with_one_index(parts: list[Part]) -> list[Part]:
    """The same parts, a multiple of an index and a constant as one affine index over a number: every second row of a mask is the mask, read at steps of two."""
    index = next(part for part in parts if part.kernel.kind == "iota")
    factor = Fraction(index.payload)
    start = factor * index.offsets[0] + sum(Fraction(part.payload) for part in parts if part.kernel.kind == "one")
    moves = [(axis, digit, factor * stride) for axis, digit, stride in index.expressions]
    bottom = lcm(start.denominator, *(stride.denominator for _, _, stride in moves))
    index.payload, index.offsets = quotient(1, bottom), [int(start * bottom)]
    index.expressions = [(axis, digit, int(stride * bottom)) for axis, digit, stride in moves]
    return [part for part in parts if part.kernel.kind != "one"]


def _leading(term: Term) -> tuple[Any, ...]:
    """A sort key for the term of one kernel whose coefficient leads: by the dims that move it before where a shard begins."""
    coefficient, (_, offsets, dims, _) = term
    moved = tuple(any(axis >= 0 for axis, _, _ in digits) for digits in dims)
    return (moved, offsets, abs(coefficient), coefficient)


def opened(ref: Ref) -> Terms | None:
    """The terms of a reference to a sum kernel; those of the sum itself where it is the negative of one, which roots are taken of."""
    out: list[Term] = []
    for factor in ref[0].factors:
        part = through(ref, factor)
        if part is None:
            return None
        inner = opened(part) if part[0].kind == "sum" else None
        out += ((factor[1], part),) if inner is None else [(factor[1] * number, term) for number, term in inner]
    return tuple(out)


def indicator(ref: Ref) -> bool:
    """Whether a reference is 0 or 1 everywhere: a truth value, a mask, a one-hot."""
    kernel = ref[0]
    if kernel.truth:
        return True
    return kernel.kind == "product" and is_mask(kernel)


def is_mask(kernel: Kernel) -> bool:
    """A product of truths in which every sum has one term at most: it runs over the column of a one-hot, or over positions that are all different, which nothing else that is summed decides."""
    free = len(kernel.shape)
    summed: set[int] = set()
    known: set[int] = set()
    for part, power, _, _, steps in kernel.factors:
        if not part.truth or power != 1:
            return False
        within = [step for step in steps if step[1] >= free]
        summed.update(label for _, label, _ in within)
        if len(within) == 1 and part.kind == "onehot":
            ((axis, label, stride),) = within
            if (axis == len(part.shape) - 1 and abs(stride) == 1) or axis == line_of(part.factors[0][0]):
                known.add(label)
    return summed <= known


def selector(terms: Terms) -> bool:
    """One term through which the other operand of a product is seen linearly, term by term: a mask or a one-hot."""
    return len(terms) == 1 and indicator(terms[0][1])


@rule(
    "distribution",
    "products",
    "`m (a + b)` = `m a + m b` where m selects, or where parts of sums can join",
    "`(x.tril() + y.tril())` = `(x + y).tril()`",
    "times",
)
def times(
    universe: Universe,
    a: Terms,
    b: Terms,
    extents: tuple[int, ...],
    summed: tuple[int, ...] = (),
) -> Terms:
    """The product of two sums, summed over some dims, which are dropped.

    A sum stays one factor unless it is a sum of masks or of windows of one reduction, or the other side only selects: distributing always would
    grow without bound.
    """
    if not a or not b:
        return ()
    if not summed:
        for one, other in ((a, b), (b, a)):
            if len(one) == 1 and one[0][1][0].kind == "one":
                return scaled(universe, other, one[0][0], extents)
    for one, other in ((a, b), (b, a)):
        if len(one) > 1 and (
            _spreads(universe, one, other) or (not summed and _distributes(universe, one, other, extents))
        ):
            out: list[Term] = []
            for term in one:
                out += times(universe, (term,), other, extents, summed)
            kept = tuple(size for dim, size in enumerate(extents) if dim not in summed) if summed else extents
            return normalise(universe, out, kept)
    factor, first = close(universe, a, extents)
    second_factor, second = close(universe, b, extents)
    coefficient, ref = multiply(universe, [(first, 1), (second, 1)], extents, summed)
    return reopened(universe, times_number(coefficient, times_number(factor, second_factor)), ref)


def _distributes(universe: Universe, one: Terms, other: Terms, extents: tuple[int, ...]) -> bool:
    """Whether a rule has use for the product of two sums only when it is written out."""
    return any(wanted(universe, one, other, extents) for wanted in universe.rules.distributed)


def _spreads(universe: Universe, one: Terms, other: Terms) -> bool:
    if len(one) > _SPREAD:
        return False
    if selector(other) or all(indicator(ref) or ref[0].kind == "one" for _, ref in one):
        return True
    if _sparse(universe, one) and (len(other) == 1 or not _sparse(universe, other)):
        return True
    if universe.expand > 1 and len(one) * len(other) <= universe.expand:
        return True
    first = one[0][1]
    return all(ref[0] is first[0] and ref[1] == first[1] and ref[2] == first[2] for _, ref in one)


def _sparse(universe: Universe, terms: Terms) -> bool:
    return any(_picks_column(universe, ref[0]) for _, ref in terms)


def _picks_column(universe: Universe, kernel: Kernel) -> bool:
    """Whether a term has a one-hot whose column is not summed: the sparse part of a gradient, to be met by the same part elsewhere."""
    if kernel.kind == "onehot":
        return True
    if kernel.kind != "product":
        return False
    key = ("column", kernel.id)
    known: Any = universe.memo.get(key)
    if known is None:
        free = len(kernel.shape)
        known = any(
            part.kind == "onehot" and any(axis == len(part.shape) - 1 and label < free for axis, label, _ in steps)
            for part, _, _, _, steps in kernel.factors
        )
        universe.memo[key] = known
    return bool(known)


def reopened(universe: Universe, coefficient: Number, ref: Ref) -> Terms:
    """A product's result as terms; a sum that was left alone is a sum again."""
    if coefficient == 0:
        return ()
    if ref[0].kind == "sum":
        terms = opened(ref)
        if terms is not None:
            extents = tuple(_size(digits) for digits in ref[2])
            return normalise(universe, [(coefficient * c, part) for c, part in terms], extents)
    if ref[0].kind == "iota":
        return fold(universe, [(coefficient, ref)], tuple(_size(digits) for digits in ref[2]))
    if ref[0].kind != "product":
        return ((coefficient, ref),)
    terms = first(universe.rules.quotients, universe, coefficient, ref, tuple(_size(digits) for digits in ref[2]))
    return ((coefficient, ref),) if terms is None else terms


def _size(digits: tuple[tuple[int, int, int], ...]) -> int:
    size = 1
    for digit in digits:
        size *= digit[2]
    return size


@rule(
    "masks on a part",
    "masks on positions",
    "a mask that is 1 or 0 on all of a slice is dropped",
    "`x.tril()[3:, :1]` = `x[3:, :1]`",
    "sum",
)
def settled(universe: Universe, terms: Terms, extents: tuple[int, ...]) -> Terms:
    """The terms of a part of a tensor: truths about positions that hold nowhere or everywhere in it are gone."""
    out: list[Term] = []
    changed = False
    for coefficient, ref in terms:
        if not ref[0].placed or _only_looks_up(ref[0]) or not _decided(ref):
            out.append((coefficient, ref))
            continue
        key = ("settled", ref, extents)
        known: Any = universe.memo.get(key)
        if known is None:
            known = universe.memo[key] = multiply(universe, [(ref, 1)], extents)
        factor, plain = known
        changed = changed or plain != ref or factor != 1
        out += reopened(universe, times_number(coefficient, factor), plain)
    return normalise(universe, out, extents) if changed else terms


def _only_looks_up(kernel: Kernel) -> bool:
    """Whether a product has look-ups by inputs, which are no sorted lines, and nothing that where one looks could decide."""
    known = kernel.looks_up
    if known is None:
        hots = [factor for factor in kernel.factors if factor[0].kind == "onehot"]
        known = kernel.looks_up = (
            kernel.kind == "product"
            and True not in [factor[0].placed for factor in kernel.factors]
            and len({hot[0] for hot in hots}) == len(hots)
            and all(hot[0].factors[0][0].kind == "leaf" for hot in hots)
            and all(_is_look_up(hot[0], len(kernel.shape), hot[4]) for hot in hots)
        )
    return known


def _decided(ref: Ref) -> bool:
    """Whether a truth about positions may be known throughout the part that a reference looks at."""
    kernel, offsets, dims, window = ref
    low, high = list(offsets), list(offsets)
    for digits in dims:
        for axis, stride, size in digits:
            if axis >= 0:
                (low if stride < 0 else high)[axis] += stride * (size - 1)
    return _decided_within(kernel, list(zip(low, high, strict=True)), window)


def _decided_within(kernel: Kernel, spans: list[tuple[int, int]], window: Window) -> bool:
    """The same over spans of the kernel's axes, both ends included; masks ``i > 0`` and one-hots of products are looked at, all else counts as decided."""
    if kernel.kind == "function" and kernel.name == "gt0" and kernel.factors[0][1] == 1:
        return spans[0][0] > 0 or spans[0][1] <= 0
    if kernel.kind != "product":
        return True
    spans = [*spans, *[(low, high - 1) for low, high in window]]
    hots: set[Kernel] = set()
    for part, _, inner, base, steps in kernel.factors:
        if part.kind == "onehot":
            if part in hots or not _is_look_up(part, len(kernel.shape), steps):
                return True
            hots.add(part)
            continue
        if part.placed:
            low, high = list(base), list(base)
            for axis, label, stride in steps:
                least, most = spans[label] if stride >= 0 else spans[label][::-1]
                low[axis] += stride * least
                high[axis] += stride * most
            if _decided_within(part, list(zip(low, high, strict=True)), inner):
                return True
    return False


def _is_look_up(hot: Kernel, free: int, steps: tuple[Expression, ...]) -> bool:
    """Whether a one-hot is read along a summed label: which columns it is summed over is the same for all of its rows.

    Of a permutation, whose whole columns are known, a part of the rows may tell more.
    """
    column = len(hot.shape) - 1
    along = [label for axis, label, _ in steps if axis == column]
    return len(along) == 1 and along[0] >= free and permuted(hot.factors[0][0]) is None


def summed_over(universe: Universe, terms: Terms, extents: tuple[int, ...], dims: tuple[int, ...]) -> Terms:
    """Every term summed over dims, which are dropped."""
    out: list[Term] = []
    for coefficient, ref in terms:
        factor, result = multiply(universe, [(ref, 1)], extents, dims)
        out += reopened(universe, times_number(coefficient, factor), result)
    kept = tuple(size for dim, size in enumerate(extents) if dim not in dims)
    return normalise(universe, out, kept)


@rule(
    "powers",
    "products",
    "`(f g)^n` = `f^n g^n` for integer `n`, `(x^2)^(1/2)` stays; roots of numbers are split into primes",
    "`(x * y) ** 2` = `x ** 2 * y ** 2`",
    "power",
)
def powered(universe: Universe, terms: Terms, exponent: Number, extents: tuple[int, ...]) -> Terms:
    """The terms to a rational power."""
    if exponent == 0:
        return constant(universe, 1, extents)
    if (
        len(terms) > 1
        and 1 < exponent <= _POWERS
        and exponent.denominator == 1
        and len(terms) ** exponent <= universe.expand
    ):
        lower = powered(universe, terms, exponent - 1, extents)
        return times(universe, lower, terms, extents)
    outside: list[tuple[Ref, Number]] = []
    for shared in universe.rules.divisors if exponent < 0 and len(terms) > 1 else ():
        more, terms = shared(universe, terms, extents)
        outside += more
    coefficient, ref = close(universe, terms, extents)
    if coefficient == 0:
        if exponent < 0:
            raise Unsupported("a division by zero")
        return ()
    items: list[tuple[Ref, Number]] = [(ref, exponent), *((place, power * exponent) for place, power in outside)]
    factor: Number
    if exponent.denominator == 1:
        factor = 1 if coefficient == 1 else Fraction(coefficient) ** int(exponent)
    elif coefficient > 0:
        factor, primes = number_power(universe, coefficient, exponent, extents)
        items += primes
    else:
        raise_on_constant(ref)
        sizes, dims, used = refine([ref], extents)
        part = Part(ref[0], coefficient, ref[3], list(ref[1]), used[0])
        items[0] = (build(universe, "sum", (), [part], sizes, dims, set()), exponent)
        factor = 1
    more, result = multiply(universe, items, extents)
    return reopened(universe, more * factor, result)


def raise_on_constant(ref: Ref) -> None:
    """Refuse a root of a negative number."""
    if ref[0].kind == "one":
        raise Unsupported("a root of a negative number")


def exact(value: float | Fraction | int) -> Number:
    """The number a literal stands for: a float means what it means in a call; a fraction is meant as it is."""
    if isinstance(value, int):
        return value
    fraction = value if isinstance(value, Fraction) else Fraction(meant(float(value)))
    return fraction.numerator if fraction.denominator == 1 else fraction


__all__ = [
    "UNBOUNDED",
    "close",
    "constant",
    "exact",
    "normalise",
    "powered",
    "scaled",
    "settled",
    "summed_over",
    "times",
]
