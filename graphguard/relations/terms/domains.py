"""Maximal domains: how far the digits of factors can be extended until one of the factors ends.

A shard and the whole tensor have the same maximal domain; what tells them apart is where in it they begin.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from graphguard.relations.terms.kernels import UNBOUNDED
from graphguard.relations.terms.orientation import grows_along, orient, origin
from graphguard.relations.terms.parts import Part


class Domain:
    """How far every digit reaches below and above the tensor's own indices."""

    __slots__ = ("above", "below", "flipped", "full")

    def __init__(self, parts: list[Part], sizes: list[int], core: dict[int, Hashable]) -> None:
        self.flipped = orient(parts, sizes, core.keys())
        count = len(sizes)
        self.below: list[int] = [0] * count
        self.above: list[int] = [0] * count
        self.full: dict[int, int] = {}
        free: set[int] = set()
        low: list[int | None] = [None] * count
        high: list[int | None] = [None] * count
        crossed: list[tuple[list[tuple[int, int]], int, int]] = []
        for part in parts:
            steps = part.expressions
            if len(steps) < 2 or len({step[0] for step in steps}) == len(steps):
                _reach_apart(part, sizes, low, high, free, crossed)
            else:
                _reach(part, sizes, low, high, free, crossed)
        for overlapping, top, offset in crossed:
            _reach_crossed(overlapping, top, offset, sizes, low, high)
        for digit, below in enumerate(low):
            above = high[digit]
            if below is None or above is None:
                continue
            if digit in core:
                self.full[digit] = sizes[digit]
            else:
                self.below[digit], self.above[digit] = below, above
                self.full[digit] = sizes[digit] + below + above
        if any(self.below):
            for part in parts:
                _shift(part, self.below)
        for digit in _in_turn(parts, free - self.full.keys()) if free else ():
            if digit in core:
                self.full[digit] = sizes[digit]
                continue
            self.below[digit] = _centre(parts, digit)
            self.full[digit] = UNBOUNDED
        for digit in core:
            self.full.setdefault(digit, sizes[digit])


def _reach(
    part: Part,
    sizes: list[int],
    low: list[int | None],
    high: list[int | None],
    free: set[int],
    crossed: list[tuple[list[tuple[int, int]], int, int]] | None = None,
) -> None:
    """Narrow the reach of the part's digits to where the part exists; axes whose digits overlap are left for ``crossed``."""
    shape, offsets = part.kernel.shape, part.offsets
    by_axis: dict[int, list[tuple[int, int]]] = {}
    for axis, digit, stride in part.expressions:
        row = by_axis.get(axis)
        if row is None:
            by_axis[axis] = [(stride, digit)]
        else:
            row.append((stride, digit))
    for axis, steps in by_axis.items():
        top = shape[axis]
        if top == UNBOUNDED:
            free.update([digit for _, digit in steps])
            continue
        if len(steps) > 1:
            steps.sort(reverse=True)
        found = _radix(steps, top, offsets[axis], sizes)
        if found is None and crossed is not None:
            crossed.append((steps, top, offsets[axis]))
            continue
        for digit, below, above in found or [(digit, 0, 0) for _, digit in steps]:
            _narrow(digit, below, above, low, high)


def _reach_apart(
    part: Part,
    sizes: list[int],
    low: list[int | None],
    high: list[int | None],
    free: set[int],
    crossed: list[tuple[list[tuple[int, int]], int, int]],
) -> None:
    """The same where every axis has one digit, as nearly all have."""
    shape, offsets = part.kernel.shape, part.offsets
    for axis, digit, stride in part.expressions:
        top = shape[axis]
        if top == UNBOUNDED:
            free.add(digit)
            continue
        below = offsets[axis]
        if stride != 1:
            if stride <= 0 or top % stride:
                crossed.append(([(stride, digit)], top, below))
                continue
            below //= stride
            top //= stride
        above = top - below - sizes[digit]
        if above < 0 or below < 0:
            crossed.append(([(stride, digit)], shape[axis], offsets[axis]))
            continue
        old = low[digit]
        if old is None or below < old:
            low[digit] = below
        old = high[digit]
        if old is None or above < old:
            high[digit] = above


def _narrow(digit: int, below: int, above: int, low: list[int | None], high: list[int | None]) -> None:
    old = low[digit]
    if old is None or below < old:
        low[digit] = below
    old = high[digit]
    if old is None or above < old:
        high[digit] = above


def _reach_crossed(
    steps: list[tuple[int, int]],
    top: int,
    offset: int,
    sizes: list[int],
    low: list[int | None],
    high: list[int | None],
) -> None:
    """Digits that overlap on an axis, as in a convolution: one may be extended where other factors hold all others."""
    movable = [(stride, digit) for stride, digit in steps if (low[digit], high[digit]) != (0, 0)]
    if len(movable) != 1 or any(stride <= 0 for stride, _ in steps):
        movable = []
    slack = top - 1 - offset - sum(stride * (sizes[digit] - 1) for stride, digit in steps)
    for stride, digit in steps:
        if (stride, digit) in movable and slack >= 0:
            _narrow(digit, offset // stride, slack // stride, low, high)
        else:
            _narrow(digit, 0, 0, low, high)


def reach(parts: list[Part], sizes: list[int], digit: int) -> tuple[int, int] | None:
    """How far one digit can be extended below and above; None where nothing bounds it."""
    low: list[int | None] = [None] * len(sizes)
    high: list[int | None] = [None] * len(sizes)
    for part in parts:
        if any(other == digit for _, other, _ in part.expressions):
            _reach(part, sizes, low, high, set())
    below, above = low[digit], high[digit]
    return None if below is None or above is None else (below, above)


def _radix(steps: list[tuple[int, int]], top: int, offset: int, sizes: list[int]) -> list[tuple[int, int, int]] | None:
    out = []
    for stride, digit in steps:
        if stride <= 0 or top % stride:
            return None
        below = offset // stride
        above = top // stride - below - sizes[digit]
        if above < 0 or below < 0:
            return None
        out.append((digit, below, above))
        offset -= below * stride
        top = stride
    return out


def _shift(part: Part, below: list[int]) -> None:
    for axis, digit, stride in part.expressions:
        if below[digit]:
            part.offsets[axis] -= below[digit] * stride


def _in_turn(parts: list[Part], digits: set[int]) -> list[int]:
    """The digits, those last that only exponentials of an index carry, or only one of these: these begin where they then do."""
    if len(digits) < 2 or all(part.kernel.name != "exp" for part in parts):
        return sorted(digits)
    others = [part for part in parts if grows_along(part.kernel) is None]
    held = {digit for part in others for _, digit, _ in part.expressions}
    several = Counter(digit for part in parts for digit in {step[1] for step in part.expressions})
    return sorted(digits, key=lambda digit: (digit not in held, several[digit] == 1, digit))


def _centre(parts: list[Part], digit: int) -> int:
    """Move a digit that only unbounded axes carry to its origin; how far."""
    amount = origin(parts, digit)
    if amount:
        for part in parts:
            for axis, other, stride in part.expressions:
                if other == digit:
                    part.offsets[axis] -= amount * stride
    return amount
