"""Exponents that count under masks: ``a ** clamp(i - j, min=0)`` grows where the mask holds and is 1 beside it."""

from __future__ import annotations

from graphguard.relations.functions.integers import compared
from graphguard.relations.rewrite.rule import rule
from graphguard.relations.sums.linear import constant, normalise, times
from graphguard.relations.sums.masks import given, part_of, split_mask
from graphguard.relations.terms.kernels import Kernel, Ref, Term, Terms, Universe
from graphguard.relations.terms.orientation import is_step
from graphguard.relations.terms.windows import through


@rule(
    "variable exponents",
    "products",
    "`b^n` = `exp(n log b)` for positive `b`, by cases over a mask in `n`",
    "`a.exp() ** n` = `(n * a).exp()`",
    "cases or none",
)
def counted_apart(universe: Universe, terms: Terms, extents: tuple[int, ...]) -> list[tuple[Terms, Terms]] | None:
    """An exponent with an index under a mask on positions as what it is where the mask holds and beside it, each with its guard; None of any other exponent."""
    for place, term in enumerate(terms):
        others = (*terms[:place], *terms[place + 1 :])
        chosen = _as_choice(universe, term, extents)
        if chosen is not None:
            return [(constant(universe, 1, extents), normalise(universe, [*others, *chosen], extents))]
        parted = split_mask(universe, term[1], extents) if _counts_under_masks(term[1][0]) else None
        if parted is not None:
            mask, number, counted = parted
            grown = [*given(universe, others, mask, extents), (term[0] * number, counted)]
            beside = normalise(universe, [*constant(universe, 1, extents), (-1, mask)], extents)
            return [(((1, mask),), normalise(universe, grown, extents)), (beside, others)]
    return None


def _counts_under_masks(kernel: Kernel) -> bool:
    if kernel.kind != "product" or kernel.reduced:
        return False
    return any(factor[0].kind == "iota" for factor in kernel.factors) and any(
        is_step(factor[0]) and factor[1] == 1 for factor in kernel.factors
    )


def _as_choice(universe: Universe, term: Term, extents: tuple[int, ...]) -> Terms | None:
    """A multiple of the larger of two indices, chosen by a mask on positions; None of any other term."""
    coefficient, ref = term
    kernel = ref[0]
    place: Ref | None = ref
    rest = constant(universe, coefficient, extents)
    if kernel.kind == "product" and not kernel.reduced:
        found = next((factor for factor in kernel.factors if _is_larger_index(factor[0]) and factor[1] == 1), None)
        if found is None:
            return None
        place = through(ref, found)
        number, other = part_of(universe, ref, [factor for factor in kernel.factors if factor is not found], extents)
        rest = ((coefficient * number, other),)
    elif not _is_larger_index(kernel):
        return None
    chosen = None if place is None else _larger_index(universe, place, extents)
    return None if chosen is None else times(universe, rest, chosen, extents)


def _is_larger_index(kernel: Kernel) -> bool:
    return (
        kernel.kind == "maximum"
        and len(kernel.factors) == 2
        and all(factor[0].kind in ("iota", "one") and factor[1].denominator == 1 for factor in kernel.factors)
    )


def _larger_index(universe: Universe, larger: Ref, extents: tuple[int, ...]) -> Terms | None:
    """The larger of two indices; where one is a number, the other from there on, as masks are most often written."""
    sides: list[Terms] = []
    for factor in sorted(larger[0].factors, key=lambda factor: factor[0].kind == "iota"):
        side = through(larger, factor)
        if side is None:
            return None
        sides.append(((factor[1], side),) if factor[1] else ())
    least, counted = sides
    guard = compared(universe, "le", least, counted, extents, integral=True)
    more = normalise(universe, [*counted, *((-number, ref) for number, ref in least)], extents)
    return normalise(universe, [*least, *times(universe, guard, more, extents)], extents)
