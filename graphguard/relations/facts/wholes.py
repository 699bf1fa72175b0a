"""Which numbers are seen to be whole: counts, positions, and what sums and products make of them."""

from __future__ import annotations

from typing import Any

from graphguard.relations.terms.kernels import Kernel, Terms, Universe


def are_whole(universe: Universe, terms: Terms) -> bool:
    """Whether every element is seen to be a whole number."""
    return all(coefficient.denominator == 1 and is_whole_number(universe, ref[0]) for coefficient, ref in terms)


def is_whole_number(universe: Universe, kernel: Kernel) -> bool:
    """Whether every element of a kernel is seen to be a whole number."""
    key = ("whole", kernel.id)
    known: Any = universe.memo.get(key)
    if known is None:
        known = universe.memo[key] = _is_whole_number(universe, kernel)  # type: ignore[assignment]
    return bool(known)


def _is_whole_number(universe: Universe, kernel: Kernel) -> bool:
    if kernel.infinite:
        return False
    if kernel.truth or kernel.type != "float" or kernel.kind in ("one", "onehot", "iota"):
        return True
    if kernel.kind == "product":
        powers = all(power.denominator == 1 and power > 0 for _, power, *_ in kernel.factors)
    elif kernel.kind in ("sum", "maximum", "max"):
        powers = all(number.denominator == 1 for _, number, *_ in kernel.factors)
    else:
        return False
    return powers and all(is_whole_number(universe, factor[0]) for factor in kernel.factors)
