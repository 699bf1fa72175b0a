"""Quotients of sums: products that partial fractions take apart, logarithms of quotients, sigmoids of logarithms.

Parts of a softmax are merged by the logarithms of their sums: with ``a`` and ``b`` the sums of two parts, ``sigmoid(log a - log b)`` is
``a / (a + b)``, and ``x/a - (b / (a + b)) x/a`` must be seen as ``x / (a + b)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

from graphguard.relations.facts.signs import never_negative, nonnegative_power
from graphguard.relations.rewrite.rule import rule
from graphguard.relations.sums.linear import normalise, opened, reopened, settled
from graphguard.relations.sums.products import Product, multiply
from graphguard.relations.terms.kernels import Factor, Kernel, Number, Ref, Term, Terms, Universe, quotient
from graphguard.relations.terms.windows import refine, through

Rewrite = Callable[[Universe, Ref, tuple[int, ...]], Terms | None]

_DIVISORS: Final = 4  # of a product that is taken apart
_PAIRS: Final = 16  # of terms that are looked at


@dataclass(frozen=True, slots=True)
class _Cluster:
    """Factors that sums tie together, or one that no sum touches; ``ref`` is their product over the tensor's own extents."""

    factors: tuple[Factor, ...]
    labels: frozenset[int]
    coefficient: Number
    ref: Ref


def clusters(universe: Universe, ref: Ref, extents: tuple[int, ...]) -> list[_Cluster]:
    """A reference to a product as a product of references whose sums are independent of each other."""
    kernel = ref[0]
    free = len(kernel.shape)
    groups: list[tuple[set[int], list[Factor]]] = []
    for factor in kernel.factors:
        labels = {label for _, label, _ in factor[4] if label >= free}
        tied = [group for group in groups if group[0] & labels]
        groups = [group for group in groups if not group[0] & labels]
        joint = labels.union(*(group[0] for group in tied))
        groups.append((joint, [*(one for group in tied for one in group[1]), factor]))
    return [
        _Cluster(tuple(factors), frozenset(labels), *product_of(universe, ref, extents, factors, labels))
        for labels, factors in groups
    ]


def product_of(
    universe: Universe, ref: Ref, extents: tuple[int, ...], factors: list[Factor], labels: set[int]
) -> tuple[Number, Ref]:
    """Some factors of the product that a reference looks at, summed over the given reduced labels."""
    sizes, dims, used = refine([ref], extents)
    product = Product(universe, sizes, dims, set())
    product.include(factors, len(ref[0].shape), 1, ref[3], list(ref[1]), used[0], only=labels)
    return product.finish()


# -- partial fractions


@rule(
    "partial fractions",
    "quotients",
    "`x (d2 - d1)/(d1 d2)` = `x/d1 - x/d2`",
    "two attention blocks merged by `logsumexp` = attention over both",
    "product of terms",
)
def partial_fractions(universe: Universe, coefficient: Number, ref: Ref, extents: tuple[int, ...]) -> Terms | None:
    """``x e / (d1 d2)`` as ``x / d1 - x / d2`` where ``e = d2 - d1``; None where no two divisors differ by a factor."""
    return rewritten(universe, _taken_apart, coefficient, ref, extents) if may_divide_apart(ref[0]) else None


def rewritten(
    universe: Universe, rewrite: Rewrite, coefficient: Number, ref: Ref, extents: tuple[int, ...]
) -> Terms | None:
    """What a rewriting makes of a multiple of a product, which is remembered; None where it does not apply.

    A product that comes back while it is rewritten stays as it is.
    """
    key = (rewrite, ref, extents)
    if key not in universe.memo:
        universe.memo[key] = None
        universe.memo[key] = rewrite(universe, ref, extents)
    known: Any = universe.memo[key]
    return None if known is None else tuple((coefficient * c, part) for c, part in known)


def mix(universe: Universe, one: Terms, other: Terms, extents: tuple[int, ...]) -> bool:
    """Whether partial fractions take a product of two of the terms apart: such a product of sums is written out."""
    if len(one) * len(other) > _PAIRS or not any(divisors(ref[0]) for _, ref in one):
        return False
    for _, first in one:
        mine = {factor[:3:2] for factor in divisors(first[0])}
        for _, second in other if mine else ():
            theirs = {factor[:3:2] for factor in divisors(second[0])}
            if theirs and mine != theirs:
                coefficient, joint = multiply(universe, [(first, 1), (second, 1)], extents)
                if coefficient != 0 and partial_fractions(universe, 1, joint, extents) is not None:
                    return True
    return False


def may_divide_apart(kernel: Kernel) -> bool:
    """Whether a kernel is a product with several divisors, and with something else to cancel them."""
    if kernel.kind != "product":
        return False
    count = len(divisors(kernel))
    return 2 <= count <= _DIVISORS and count < len(kernel.factors)


def divisors(kernel: Kernel) -> list[Factor]:
    """Sums by which a product is divided, outside its own sums."""
    known = kernel.divisors
    if known is None:
        known = kernel.divisors = _divisors(kernel) if kernel.kind == "product" else []
    return known


def _divisors(kernel: Kernel) -> list[Factor]:
    free = len(kernel.shape)
    return [
        factor
        for factor in kernel.factors
        if factor[1].denominator == 1
        and factor[1] < 0
        and factor[0].kind in ("sum", "product")
        and not any(label >= free for _, label, _ in factor[4])
    ]


def _taken_apart(universe: Universe, ref: Ref, extents: tuple[int, ...]) -> Terms | None:
    found = divisors(ref[0])
    sums = {id(factor): terms_through(ref, factor) for factor in found}
    parts = [part for part in clusters(universe, ref, extents) if part.labels or part.factors[0][1] == 1]
    for first, second in combinations(found, 2):
        low, high = sums[id(first)], sums[id(second)]
        if low is None or high is None:
            continue
        gap = settled(universe, normalise(universe, [*high, *((-c, part) for c, part in low)], extents), extents)
        for part in parts:
            ratio = _ratio(
                universe, gap, settled(universe, reopened(universe, part.coefficient, part.ref), extents), extents
            )
            if ratio is None:
                continue
            kept = [factor for factor in ref[0].factors if factor not in part.factors]
            free = len(ref[0].shape)
            labels = {free + axis for axis in range(len(ref[0].reduced))} - part.labels
            terms: list[Term] = []
            for gone, sign in ((second, 1), (first, -1)):
                rest = [_once_more(factor) if factor is gone else factor for factor in kept]
                left = [factor for factor in rest if factor[1] != 0]
                coefficient, plain = product_of(universe, ref, extents, left, labels)
                terms += reopened(universe, quotient(sign * coefficient, ratio), plain)
            return normalise(universe, terms, extents)
    return None


def _once_more(factor: Factor) -> Factor:
    """The factor, multiplied once more."""
    kernel, power, *rest = factor
    return (kernel, power + 1, *rest)


def terms_through(ref: Ref, factor: Factor) -> Terms | None:
    """What a factor of a product is a power of, as terms."""
    part = through(ref, factor)
    if part is None:
        return None
    return opened(part) if part[0].kind == "sum" else ((1, part),)


def _ratio(universe: Universe, a: Terms, b: Terms, extents: tuple[int, ...]) -> Number | None:
    """The number that a is a multiple of b by, if it is also the ratio of two of their coefficients.

    The whole less every other element is the rest of them, which no comparison of terms shows: it is seen once the rest is taken away as well.
    """
    if not a or not b or len(a) < len(b) or len(a) > _PAIRS:
        return None
    for ratio in dict.fromkeys(quotient(number, b[0][0]) for number, _ in a):
        if len(a) == len(b):
            if all(one[1] == other[1] and one[0] == ratio * other[0] for one, other in zip(a, b, strict=True)):
                return ratio
        elif not normalise(universe, [*a, *((-ratio * c, ref) for c, ref in b)], extents):
            return ratio
    return None


# -- exponentials that all terms share

_SHARING: Final = 16  # terms of a sum that are looked at


@rule(
    "common exponentials",
    "quotients",
    "`x e^-m/(a e^-m + 1)` = `x/(a + e^m)`",
    "`(x - x.amax(-1, True)).softmax(-1)` = `x.softmax(-1)`",
    "common factors",
)
def shared_exponentials(
    universe: Universe, terms: Terms, extents: tuple[int, ...]
) -> tuple[list[tuple[Ref, Number]], Terms]:
    """``a e^-m + b e^-m`` as ``e^-m`` and ``a + b``, and ``a e^-m + 1`` as ``e^-m`` and ``a + e^m``: powers of exponentials, and the terms without them.

    A softmax is the same whatever number its exponents are taken less; of the terms no exponential is left that divides any of them.
    """
    return shared_factors(universe, terms, extents, exponentials)


def shared_factors(
    universe: Universe, terms: Terms, extents: tuple[int, ...], factors_of: Callable[[Ref], dict[Ref, Number]]
) -> tuple[list[tuple[Ref, Number]], Terms]:
    """Powers of factors that divide any of the terms, and the terms without them: those that ``factors_of`` finds in a term, outside its sums."""
    if not 1 < len(terms) <= _SHARING:
        return [], terms
    powers = [factors_of(ref) for _, ref in terms]
    every = dict.fromkeys(place for found in powers for place in found)
    least = {place: min(found.get(place, 0) for found in powers) for place in every}
    pulled = [(place, power) for place, power in least.items() if power]
    if not pulled:
        return [], terms
    rest: list[Term] = []
    for number, ref in terms:
        factor, left = multiply(universe, [(ref, 1), *((place, -power) for place, power in pulled)], extents)
        rest += reopened(universe, number * factor, left)
    return pulled, normalise(universe, rest, extents)


def exponentials(ref: Ref) -> dict[Ref, Number]:
    """The exponentials by which a term is multiplied outside its sums, with their powers."""
    kernel = ref[0]
    if kernel.kind == "function" and kernel.name == "exp":
        return {ref: 1}
    return factors_outside(ref, lambda factor: factor[0].kind == "function" and factor[0].name == "exp")


def factors_outside(ref: Ref, wanted: Callable[[Factor], bool]) -> dict[Ref, Number]:
    """The factors of a kind by which a product is multiplied outside its sums, with their powers."""
    kernel = ref[0]
    found: dict[Ref, Number] = {}
    if kernel.kind == "product":
        free = len(kernel.shape)
        for factor in kernel.factors:
            if wanted(factor) and not any(label >= free for _, label, _ in factor[4]):
                place = through(ref, factor)
                if place is not None:
                    found[place] = factor[1]
    return found


# -- logarithms


def falling_sigmoid(terms: Terms) -> tuple[Term, Term] | None:
    """``c - c sigmoid(t)`` as ``c sigmoid(t)`` and ``-t``, of which its logarithm is the sum with the first under a logarithm; None for any other sum."""
    if len(terms) != 2:
        return None
    number, share = terms if terms[0][1][0].kind == "one" else terms[::-1]
    kernel = share[1][0]
    if number[1][0].kind != "one" or kernel.kind != "function" or kernel.name != "sigmoid" or share[0] != -number[0]:
        return None
    inner = through(share[1], kernel.factors[0])
    return None if inner is None else ((number[0], share[1]), (-kernel.factors[0][1], inner))


def logarithms(universe: Universe, ref: Ref, extents: tuple[int, ...]) -> list[tuple[Number, Term]] | None:
    """log of a product as multiples of logarithms of terms, where at most one factor is not seen to be positive; None where nothing comes apart.

    The product is positive, as its logarithm is taken: so are factors that cannot be negative, and then the last one.
    """
    parts = clusters(universe, ref, extents)
    if len(parts) < 2 or any(part.coefficient <= 0 for part in parts):
        return None
    out: list[tuple[Number, Term]] = []
    unknown = 0
    for part in parts:
        base = None if part.labels or part.coefficient != 1 else through(ref, part.factors[0])
        if base is not None and never_negative(base[0]):
            out.append((part.factors[0][1], (1, base)))
            continue
        out.append((1, (part.coefficient, part.ref)))
        unknown += not all(never_negative(factor[0]) or nonnegative_power(factor[1]) for factor in part.factors)
    return out if unknown <= 1 else None


def is_growing(ref: Ref) -> bool:
    """Whether a reference is 1, or a product of growing exponentials."""
    kernel, powers = ref[0], exponentials(ref)
    alone = kernel.kind in ("one", "function") or (kernel.kind == "product" and len(kernel.factors) == len(powers))
    return alone and (kernel.kind == "one" or bool(powers)) and all(power > 0 for power in powers.values())


@rule(
    "differences of quotients",
    "quotients",
    "`c - c f/(f + b e)` = `c b e/(f + b e)`",
    "`(1 - torch.sigmoid(x)).log()` = `-(1 + x.exp()).log()`",
    "as product",
)
def as_product(universe: Universe, terms: Terms, extents: tuple[int, ...]) -> Term | None:
    """``c - c f / (f + b e)`` as ``c b e / (f + b e)``, whose logarithm comes apart; None for any other sum."""
    if len(terms) != 2:
        return None
    number, (coefficient, ref) = terms if terms[0][1][0].kind == "one" else terms[::-1]
    found = divisors(ref[0])
    parts = terms_through(ref, found[0]) if len(found) == 1 and found[0][1] == -1 else None
    whole = through(ref, found[0]) if parts is not None else None
    if number[1][0].kind != "one" or whole is None or parts is None:
        return None
    factor, above = multiply(universe, [(ref, 1), (whole, 1)], extents)
    rest = [*((number[0] * c, part) for c, part in parts), (coefficient * factor, above)]
    left = settled(universe, normalise(universe, rest, extents), extents)
    if len(left) != 1 or not is_growing(left[0][1]):
        return None
    more, joint = multiply(universe, [(left[0][1], 1), (whole, -1)], extents)
    return left[0][0] * more, joint
