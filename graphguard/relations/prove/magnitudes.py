"""How large values are that rest on truths and whole numbers alone: counts, positions, and what is computed of them.

Such numbers come out of no float that was rounded before, so in a narrow float type they are rounded where they are not among its whole numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

from graphguard.relations.facts.wholes import are_whole
from graphguard.relations.functions.integers import span
from graphguard.relations.sums.linear import is_mask
from graphguard.relations.terms.kernels import Factor, Kernel, Number, Ref, Terms, Universe, Window
from graphguard.relations.terms.values import NormalValue

_LARGEST: Final = 1 << 200  # beyond all float types


def most_counted(universe: Universe, value: NormalValue, digits: int) -> float | None:
    """The most that whole numbers, or multiples of a power of two of at most so many binary digits behind the point, can be in units of it.

    Infinity where no unit or no end is seen, None for what rests on a float.
    """
    if value.kind == "bool":
        return 1.0
    most = 0.0
    for _, terms in value.pieces:
        found = _of_terms(universe, terms, digits)
        if found is None:
            return None
        most = max(most, found)
    return most


def is_whole(universe: Universe, value: NormalValue) -> bool:
    """Whether all elements are seen to be whole numbers; a count is one as a float, too."""
    if value.kind != "float":
        return True
    return all(are_whole(universe, terms) for _, terms in value.pieces)


def _of_terms(universe: Universe, terms: Terms, digits: int) -> float | None:
    sizes: list[float] = []
    for _, ref in terms:
        most = _of_ref(universe, ref)
        if most is None:
            return None
        sizes.append(most)
    unit = math.lcm(*[coefficient.denominator for coefficient, _ in terms])
    scale = unit if unit & (unit - 1) == 0 and unit <= 1 << digits else 1
    return _total(zip([coefficient * scale for coefficient, _ in terms], sizes, strict=True))


def _of_ref(universe: Universe, ref: Ref) -> float | None:
    if ref[0].kind == "iota":
        return float(max(map(abs, span(ref))))
    return _of_kernel(universe, ref[0], ref[3])


def _of_kernel(universe: Universe, kernel: Kernel, window: Window) -> float | None:
    """The same of one kernel over a window of what it sums."""
    key = ("magnitude", kernel.id, window)
    if key not in universe.memo:
        universe.memo[key] = _worked_out(universe, kernel, window)  # type: ignore[assignment]
    known: Any = universe.memo[key]
    return known  # type: ignore[no-any-return]


def _worked_out(universe: Universe, kernel: Kernel, window: Window) -> float | None:
    if kernel.infinite:
        return None
    if kernel.truth or kernel.kind in ("one", "onehot") or (kernel.kind == "product" and is_mask(kernel)):
        return 1.0
    if kernel.kind == "product":
        return _of_product(universe, kernel.factors, window)
    if kernel.kind in ("sum", "maximum", "max"):
        return _total((factor[1], _of_kernel(universe, factor[0], factor[2])) for factor in kernel.factors)
    if kernel.kind in ("iota", "number") or kernel.type != "float":
        return float(max(map(abs, kernel.range))) if kernel.range is not None else math.inf
    if kernel.kind in ("function", "apply") and kernel.name != "cast":
        known = all(_of_kernel(universe, factor[0], factor[2]) is not None for factor in kernel.factors)
        return math.inf if known else None
    return None


def _of_product(universe: Universe, factors: Iterable[Factor], window: Window) -> float | None:
    most = float(math.prod(high - low for low, high in window))
    whole = True
    for kernel, power, inner, _, _ in factors:
        own = _of_kernel(universe, kernel, inner)
        if own is None:
            return None
        whole = whole and power.denominator == 1 and power > 0
        for _ in range(int(power) if whole else 0):
            most = min(most * own, _LARGEST)
            if own <= 1 or most == _LARGEST:
                break
    return most if whole else math.inf


def _total(parts: Iterable[tuple[Number, float | None]]) -> float | None:
    total = 0.0
    for number, part in parts:
        if part is None:
            return None
        total += _times(number, part)
    return total


def _times(number: Number, most: float) -> float:
    return float(min(abs(int(number)), _LARGEST)) * most if number.denominator == 1 else math.inf
