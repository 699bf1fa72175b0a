"""Step functions of one integer that are compared with positions: ``min(n, 4) > j`` and ``n // 2 > j`` are ``n > T(j)``.

A rank that keeps its own lengths of sequences cuts them to its part (``(n - start).clamp(0, size)``) or divides them among the ranks (``(n + 1) // 2``), and masks
its own positions by them.  Where the step function never falls, or never rises, over the known range of the integer, such a mask is one of the integer itself; it is the
specification's, read at the rank's positions, if T is affine there.  Where all integers of the range are on one side, T may be anything beyond them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Final

from graphguard.relations.terms.kernels import Digits

_LONGEST: Final = 4096  # ranges, and positions, that are gone through


@dataclass(frozen=True, slots=True)
class Step:
    """For ``low <= n < high``, the integer ``slope n + start``."""

    low: int
    high: int
    slope: int
    start: int


@dataclass(frozen=True, slots=True)
class Threshold:
    """With a share ``p`` of positions, ``f(n) + p > 0`` is ``n + factor p > start`` if f ``rises``; if it falls, the factor is below zero and it is the opposite."""

    rises: bool
    factor: int
    start: int


def threshold(steps: Sequence[Step], known: tuple[int, int], dims: Sequence[Digits]) -> Threshold | None:
    """Where a step function of an integer of a known range, and the share of positions that these digits move, add to more than zero; None where that is no affine line."""
    shares = _shares(dims)
    if known[1] - known[0] > _LONGEST or shares is None:
        return None
    heights = _heights(steps, known)
    if heights is None:
        return None
    rises = all(one <= other for one, other in pairwise(heights))
    if not rises and any(one < other for one, other in pairwise(heights)):
        return None
    way = 1 if rises else -1
    line = _line([(-way * share, _last(heights, -share, known, rises)) for share in shares], known)
    return None if line is None else Threshold(rises, way * line[0], line[1])


def _shares(dims: Sequence[Digits]) -> list[int] | None:
    """All that positions can add."""
    found = {0}
    for digits in dims:
        for axis, stride, size in digits:
            if axis >= 0 and stride:
                if len(found) * size > _LONGEST:
                    return None
                found = {share + stride * place for share in found for place in range(size)}
    return sorted(found)


def _heights(steps: Sequence[Step], known: tuple[int, int]) -> list[int] | None:
    """What the step function is for every integer of the range; None where a step is missing, or two meet."""
    ordered = sorted(steps, key=lambda step: step.low)
    if not ordered or any(one.high != other.low for one, other in pairwise(ordered)):
        return None
    if ordered[0].low > known[0] or ordered[-1].high < known[1]:
        return None
    return [
        step.slope * n + step.start
        for step in ordered
        for n in range(max(step.low, known[0]), min(step.high, known[1]))
    ]


def _last(heights: list[int], level: int, known: tuple[int, int], rises: bool) -> int:
    """The last integer up to which the function is not above a level, or up to which it is if it falls."""
    if rises:
        return known[0] + bisect_right(heights, level) - 1
    return known[0] + sum(height > level for height in heights) - 1


def _line(points: Sequence[tuple[int, int]], known: tuple[int, int]) -> tuple[int, int] | None:
    """The factor, the least there is, and the start of a line through points, of which those at the ends of the range may lie beyond."""
    for factor in range(1, known[1] - known[0] + 1):
        least, most = -inf, inf
        for level, last in points:
            if last >= known[0]:
                least = max(least, last - factor * level)
            if last < known[1] - 1:
                most = min(most, last - factor * level)
        if least <= most:
            return factor, int(least if least > -inf else most)
    return None
