"""Common factors of sums: ``c S + c T`` is ``c (S + T)`` where S + T is no longer than the longer of the two.

What a rank adds up may be a sum of several terms, and it may be multiplied before the ranks' parts are added: the windows of S and T then join inside the product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from graphguard.relations.rewrite.rule import rule
from graphguard.relations.sums.linear import normalise, opened, scaled, times
from graphguard.relations.sums.products import Product
from graphguard.relations.terms.kernels import Factor, Kernel, Number, Ref, Term, Terms, Universe
from graphguard.relations.terms.windows import refine

_MEMBERS: Final = 64  # terms that are looked at
_LONGEST: Final = 128  # terms of a sum that is a factor


@dataclass(frozen=True, slots=True)
class _Split:
    """A product as a sum among its factors and the rest of them, over the extents and its ``summed`` digits."""

    rest: Ref
    terms: Terms
    summed: tuple[int, ...]


@rule(
    "factoring",
    "sums",
    "`c S + c T` = `c (S + T)` if that is no longer",
    "`a * x.sum() + a * y.sum()` = `a * (x + y).sum()`",
    "sum",
)
def brought_together(universe: Universe, items: list[Term], extents: tuple[int, ...]) -> list[Term]:
    """The same sum with fewer terms where sums have all other factors in common."""
    return _brought_together(universe, items, extents) if len(items) > 1 else items


def _brought_together(universe: Universe, items: list[Term], extents: tuple[int, ...]) -> list[Term]:
    families: dict[Any, dict[int, list[Term]]] = {}
    for term in items:
        found = _family(universe, term[1][0])
        if found is not None:
            families.setdefault((found[0], len(term[1][3])), {}).setdefault(found[1], []).append(term)
    for family in families.values():
        members = [term for terms in family.values() for term in terms]
        if len(family) > 1 and len(members) <= _MEMBERS:
            joined = _joined(universe, members, extents)
            if joined is not None:
                gone = {ref for _, ref in joined[0]}
                kept = {ref: c for c, ref in items if ref not in gone}
                for coefficient, ref in joined[1]:
                    kept[ref] = kept.get(ref, 0) + coefficient
                return _brought_together(universe, [(c, ref) for ref, c in kept.items() if c], extents)
    return items


def _family(universe: Universe, kernel: Kernel) -> tuple[Any, int] | None:
    """What a product must share with others to have all factors but a sum in common, and the sum; None of those without just one sum.

    The sums have windows of the same kernels: of others the two together would not be shorter.
    """
    if kernel.kind != "product":
        return None
    key = ("common factors", kernel.id)
    if key not in universe.memo:
        sums = [factor for factor in kernel.factors if factor[0].kind == "sum" and factor[1] == 1]
        others = tuple(sorted((factor[0].id, factor[1]) for factor in kernel.factors if factor not in sums))
        parts = tuple(sorted(factor[0].id for one in sums for factor in one[0].factors))
        universe.memo[key] = ((others, parts), sums[0][0].id) if len(sums) == 1 else None  # type: ignore[assignment]
    return universe.memo[key]  # type: ignore[return-value]


def _joined(universe: Universe, members: list[Term], extents: tuple[int, ...]) -> tuple[list[Term], Terms] | None:
    """Some of the members, and what they add up to in fewer terms."""
    alike: dict[Any, list[tuple[Term, _Split]]] = {}
    for term in members:
        split = _split(universe, term[1], extents)
        if split is not None:
            alike.setdefault((split.rest, split.summed), []).append((term, split))
    for (rest, summed), found in alike.items():
        longest = max(len(split.terms) for _, split in found)
        if len(found) < 2 or longest > _LONGEST:
            continue
        wide = (*extents, *summed)
        parts = [part for term, split in found for part in scaled(universe, split.terms, term[0], wide)]
        total = normalise(universe, parts, wide)
        if len(total) <= longest:
            dims = tuple(range(len(extents), len(wide)))
            return [term for term, _ in found], times(universe, ((1, rest),), total, wide, dims)
    return None


def _split(universe: Universe, ref: Ref, extents: tuple[int, ...]) -> _Split | None:
    key = ("split at its sum", ref, extents)
    if key not in universe.memo:
        universe.memo[key] = _split_at_sum(universe, ref)  # type: ignore[assignment]
    known: Any = universe.memo[key]
    return known  # type: ignore[no-any-return]


def _split_at_sum(universe: Universe, ref: Ref) -> _Split | None:
    factors = ref[0].factors
    inner = [factor for factor in factors if factor[0].kind == "sum" and factor[1] == 1]
    number, rest = _over(universe, ref, [factor for factor in factors if factor not in inner])
    more, closed = _over(universe, ref, inner)
    if closed[0].kind != "sum" or number != 1 or more != 1:
        return None
    terms = opened(closed)
    summed = tuple(high - low for low, high in ref[3])
    return None if terms is None else _Split(rest, terms, summed)


def _over(universe: Universe, ref: Ref, factors: list[Factor]) -> tuple[Number, Ref]:
    """Factors of the product that a reference looks at, over its extents and a dim for each of its summed labels."""
    sizes, dims, used = refine([ref], ())
    outer = len(sizes)
    product = Product(universe, sizes, dims, set())
    product.include(factors, len(ref[0].shape), 1, ref[3], list(ref[1]), used[0])
    summed = range(outer, outer + len(ref[3]))
    product.reduced -= set(summed)
    product.dims = [*dims, *([digit] for digit in summed)]
    return product.finish()
