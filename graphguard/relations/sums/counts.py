"""Counts: sums of truths under ``> 0`` and ``== 0``.

Whether a sum of numbers that are zero or more is positive does not depend on how often each of them counts, nor on whether some of them were
asked the same before: ``[c1 t1 + c2 [s > 0] + c3 max(u) > 0] = [t1 + s + sum(u) > 0]``.  So *any*, of all elements or of any over every rank's, is one form.
Nor does it depend on what both of two truths count: ``[a + b - a b > 0] = [a + b > 0]``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from graphguard.relations.rewrite.rule import rule
from graphguard.relations.sums.linear import normalise, opened
from graphguard.relations.sums.products import Product
from graphguard.relations.terms.kernels import UNBOUNDED, Factor, Kernel, Ref, Term, Terms, Universe
from graphguard.relations.terms.windows import refine, through

_FACTORS: Final = 4  # of a product of truths that is taken apart
ENDLESS: Final = UNBOUNDED // 2  # where a window of the columns of a one-hot ends that has no end


@rule(
    "counts",
    "counts and numbers",
    "whether a sum of nonnegative numbers is positive does not depend on how often each counts",
    "`(x > 0).any()` = `((x[:2] > 0).sum() + (x[2:] > 0).sum()) > 0`",
    "count",
)
def supported(universe: Universe, terms: Terms, extents: tuple[int, ...]) -> Terms | None:
    """A count that is positive where the terms are; None where they are no count."""
    terms = _without_overlaps(universe, terms, extents)
    if not terms or not all(coefficient > 0 and is_count(ref[0]) for coefficient, ref in terms):
        return None
    key = ("supported", tuple(ref for _, ref in terms), extents)
    known: Any = universe.memo.get(key)
    if known is None:
        known = universe.memo[key] = _supported(universe, [ref for _, ref in terms], extents)
    return known  # type: ignore[no-any-return]


def _without_overlaps(universe: Universe, terms: Terms, extents: tuple[int, ...]) -> Terms:
    """``a + b - a b``, where one of two truths holds, is positive where ``a + b`` is; no terms where anything else is taken away."""
    taken = [(-coefficient, ref) for coefficient, ref in terms if coefficient < 0]
    if not taken:
        return terms
    left = {ref: coefficient for coefficient, ref in terms if coefficient > 0}
    kept = dict(left)
    for coefficient, ref in taken:
        for halves in _halves(universe, ref, extents):
            if all(left.get(half, 0) >= coefficient for half in halves):
                for half in halves:
                    del left[half]  # what it covers is used up
                break
        else:
            return ()
    return tuple((coefficient, ref) for ref, coefficient in kept.items())


def _halves(universe: Universe, ref: Ref, extents: tuple[int, ...]) -> Iterator[tuple[Ref, Ref]]:
    """The pairs of different products of truths whose product, element by element of the same sum, a reference is."""
    factors = ref[0].factors
    if ref[0].kind != "product" or not all(factor[0].truth and factor[1] == 1 for factor in factors):
        return
    for choice in range(1, 1 << min(len(factors), _FACTORS) - 1):
        sides = [[f for place, f in enumerate(factors) if (choice >> place & 1) == side] for side in (0, 1)]
        (one, first), (other, second) = (_part(universe, ref, side, extents) for side in sides)
        if one == other == 1 and first != second:
            yield first, second


def _part(universe: Universe, ref: Ref, factors: list[Factor], extents: tuple[int, ...]) -> Term:
    """The same sum of some of the factors of a product."""
    sizes, dims, used = refine([ref], extents)
    product = Product(universe, sizes, dims, set())
    product.include(factors, len(ref[0].shape), 1, ref[3], list(ref[1]), used[0])
    return product.finish()


def _supported(universe: Universe, refs: list[Ref], extents: tuple[int, ...]) -> Terms:
    found: list[Term] = []
    for ref in refs:
        inner = _asked(universe, ref, extents)
        found += ((1, ref),) if inner is None else _supported(universe, inner, extents)
    counts = normalise(universe, [(1, ref) for ref in dict.fromkeys(ref for _, ref in found)], extents)
    return counts if all(c == 1 for c, _ in counts) else tuple((1, ref) for _, ref in counts)


def is_count(kernel: Kernel) -> bool:
    """Whether all values are seen to be sums or maxima of truths."""
    if kernel.truth or kernel.kind == "one":
        return True
    if kernel.kind in ("product", "sum", "max", "maximum"):
        return bool(kernel.factors) and all(factor[1] > 0 and is_count(factor[0]) for factor in kernel.factors)
    return False


def _asked(universe: Universe, ref: Ref, extents: tuple[int, ...]) -> list[Ref] | None:
    """Counts of which one is positive where a count is: those that it asks for, adds up, or takes the largest of; None where it is one of truths."""
    kernel = ref[0]
    if kernel.kind == "max":
        return [_summed(universe, ref, extents)]
    if kernel.kind in ("sum", "maximum"):
        terms = opened(ref)
        return None if terms is None else [inner for _, inner in terms]
    inner = _more_than_none(ref)
    return None if inner is None or inner[0].kind == "iota" or not is_count(inner[0]) else [inner]


def _more_than_none(ref: Ref) -> Ref | None:
    """The number of which a mask says that it is more than zero: of an integer, all columns of its one-hot but the first."""
    kernel = ref[0]
    if kernel.kind == "function" and kernel.name == "gt0" and kernel.factors[0][1] > 0:
        return through(ref, kernel.factors[0])
    if kernel.kind != "product" or len(kernel.factors) != 1 or ref[3] != ((1, ENDLESS),):
        return None
    hot, power, _, base, steps = kernel.factors[0]
    column, free = len(hot.shape) - 1, len(kernel.shape)
    moving = [step for step in steps if step[1] >= free]
    if hot.kind != "onehot" or power != 1 or base[column] or moving != [(column, free, 1)]:
        return None
    integer, _, window, _, _ = hot.factors[0]
    return through(ref, (integer, 1, window, base[:column], tuple(step for step in steps if step[1] < free)))


def _summed(universe: Universe, ref: Ref, extents: tuple[int, ...]) -> Ref:
    """The sum of what a maximum is taken of."""
    factors: list[Factor] = [(kernel, 1, window, base, steps) for kernel, _, window, base, steps in ref[0].factors]
    return _part(universe, ref, factors, extents)[1]
