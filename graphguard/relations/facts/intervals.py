"""Between which integers sums and products of bounded integers lie: counts of a mask, running ones too, are no larger than the mask is long."""

from __future__ import annotations

from itertools import product
from math import prod

from graphguard.relations.terms.kernels import Factor, Kernel, Ref, Window
from graphguard.relations.terms.permutations import known_range


def between(ref: Ref) -> tuple[int, int] | None:
    """The integers that a reference can show, as a half-open range; None where one of its parts is not bounded."""
    found = _interval(ref[0], ref[3])
    return None if found is None else (found[0], found[1] + 1)


def _interval(kernel: Kernel, window: Window) -> tuple[int, int] | None:
    known = known_range(kernel)
    if known is not None:
        return known[0], known[1] - 1
    if kernel.kind == "onehot" or (kernel.truth and not kernel.reduced):
        return 0, 1
    if kernel.kind == "one":
        return 1, 1
    if kernel.kind not in ("product", "sum"):
        return None
    parts = [_part(kernel, factor) for factor in kernel.factors]
    whole = [part for part in parts if part is not None]
    if len(whole) != len(parts):
        return None
    if kernel.kind == "sum":
        return sum(low for low, _ in whole), sum(high for _, high in whole)
    ends = [prod(chosen) for chosen in product(*whole)] if len(whole) < 8 else []
    summands = prod(high - low for low, high in window)
    return (summands * min(ends), summands * max(ends)) if ends else None


def _part(kernel: Kernel, factor: Factor) -> tuple[int, int] | None:
    """The bounds of a factor to its power, or of a summand times its coefficient."""
    part, payload, window, *_ = factor
    inner = _interval(part, window)
    if inner is None or payload.denominator != 1:
        return None
    number = int(payload)
    if kernel.kind == "sum":
        return min(number * inner[0], number * inner[1]), max(number * inner[0], number * inner[1])
    if number < 1:
        return None
    ends = [end**number for end in inner]
    return min(*ends, 0), max(*ends, 0)
