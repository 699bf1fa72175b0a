"""Which extents of a program shrink together: every dim is a product of digits, every digit belongs to a scale.

Digits of one scale are divided by one number.  Equal extents share a scale; so do a dim and its slices, whose offsets the divisor must divide as well.
A reshape cuts digits, and with one digit all others of its scale.  Values of integer tensors that index a dim are scaled
like the dim.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

SMALLEST = 2  # an extent of one would make every order and offset look right
NEAR = 2  # positions this far from a multiple of the divisor: a slice that is off by one
LARGE = 64  # an extent above it is worth a divisor that not all positions are multiples of
WHOLE = 8  # of what is not sharded there should be some: a norm over two elements hardly depends on them


@dataclass(frozen=True, slots=True)
class Digit:
    """One factor of a dim; an extent of 0 stands for the values of an integer tensor."""

    scale: int
    extent: int


Digits = tuple[Digit, ...]  # outermost first; the empty product is 1


@dataclass(slots=True)
class _Scale:
    """Numbers that the divisor must divide; or the two scales into which it was cut, at an inner extent; or the scale it was merged into."""

    extents: set[int] = field(default_factory=set)
    offsets: set[int] = field(default_factory=set)
    fixed: bool = False
    cut: tuple[int, int, int] | None = None
    into: int | None = None


class Scales:
    """The scales of one program, under inference."""

    def __init__(self) -> None:
        self._scales: list[_Scale] = []

    # -- digits
    def fresh(self, extent: int) -> Digits:
        """A dim of which nothing is known yet."""
        if extent == 1:
            return ()
        self._scales.append(_Scale({extent} if extent else set()))
        return (Digit(len(self._scales) - 1, extent),)

    def resolve(self, digits: Iterable[Digit]) -> list[Digit]:
        """Digits in terms of scales that are neither merged nor cut."""
        out: list[Digit] = []
        for digit in digits:
            root = self._root(digit.scale)
            cut = self._scales[root].cut
            if cut is not None:
                outer, inner, extent = cut
                out.extend(self.resolve((Digit(outer, digit.extent // extent), Digit(inner, extent))))
            elif digit.extent != 1:  # an extent of one is no digit; its scale knows that it must stay whole
                out.append(Digit(root, digit.extent))
        return out

    def fix(self, digits: Iterable[Digit]) -> None:
        """Keep digits as they are."""
        for digit in self.resolve(digits):
            self._scales[digit.scale].fixed = True

    # -- equations
    def same(self, a: Iterable[Digit], b: Iterable[Digit]) -> None:
        """Two dims (or rows of dims) hold the same elements in the same order."""
        self.window(a, 0, b)

    def window(self, whole: Iterable[Digit], start: int, part: Iterable[Digit]) -> None:
        """``part`` is the positions of ``whole`` from ``start`` on."""
        left, right = self.resolve(whole), self.resolve(part)
        kept = (*left, *right)
        rounds = 0
        while len(left) > 1 or len(right) > 1:
            rounds += 1
            if rounds > 32:  # a dim that would be a part of itself
                self.fix(kept)
                return
            extents = [digits[-1].extent for digits in (left, right) if digits and digits[-1].extent]
            size = min(extents, default=1)
            if not left or not right or start % size or not self._cut_both(left, right, size):
                self.fix(kept)
                return
            left, right = self.resolve(left), self.resolve(right)
            self._merge(left.pop().scale, right.pop().scale)
            left, right, start = self.resolve(left), self.resolve(right), start // size
        self._link(left, right, start)

    def offset(self, digits: Iterable[Digit], number: int) -> None:
        """A position along a dim, or a literal among the values that index it."""
        self.window(digits, number, self.resolve(digits))

    def _cut_both(self, left: list[Digit], right: list[Digit], size: int) -> bool:
        """Cut the innermost digits of both at ``size``; the second may have been cut with the first."""
        if not self._cut(left[-1], size):
            return False
        inner = self.resolve(right)[-1]
        return self._cut(inner, size)

    def _link(self, left: list[Digit], right: list[Digit], start: int) -> None:
        """One digit each, or none: the same scale, whatever their extents."""
        if left and right:
            self._merge(left[0].scale, right[0].scale)
        for digit in (*left, *right):
            scale = self._scales[self._root(digit.scale)]
            scale.offsets.add(start)
            if not (left and right) and digit.extent:
                scale.extents.add(1)

    def _root(self, index: int) -> int:
        """The scale that an index now stands for; the way there is shortened."""
        root = index
        while (into := self._scales[root].into) is not None:
            root = into
        while index != root:
            scale = self._scales[index]
            index, scale.into = scale.into if scale.into is not None else root, root
        return root

    def _merge(self, a: int, b: int) -> None:
        a, b = self._root(a), self._root(b)
        if a == b:
            return
        one, other = self._scales[a], self._scales[b]
        if one.cut is not None or other.cut is not None:  # resolved digits are never cut
            raise AssertionError("a scale that was cut is merged")
        one.extents |= other.extents
        one.offsets |= other.offsets
        one.fixed |= other.fixed
        other.into = a

    def _cut(self, digit: Digit, size: int) -> bool:
        """Cut a digit's scale so that its inner extent is ``size``; whether all members allow it."""
        root = self._root(digit.scale)
        if digit.extent == size:
            return True
        scale = self._scales[root]
        if any(number % size for number in (*scale.extents, *scale.offsets)):
            return False
        outer = _Scale({e // size for e in scale.extents}, {o // size for o in scale.offsets}, scale.fixed)
        inner = _Scale({size}, set(), scale.fixed)
        self._scales.extend((outer, inner))
        scale.cut = (len(self._scales) - 2, len(self._scales) - 1, size)
        return True

    # -- the answer
    def divisors(self, literals: Iterable[int]) -> dict[int, int]:
        """For every scale the largest divisor that keeps extents apart; none for a scale whose extents a literal of the program may count."""
        counts = tuple(literals)
        return {
            index: self._divisor(scale, counts)
            for index, scale in enumerate(self._scales)
            if scale.into is None and scale.cut is None
        }

    def _divisor(self, scale: _Scale, counts: tuple[int, ...]) -> int:
        if scale.fixed or not scale.extents:
            return 1
        if any(count % extent == 0 for count in counts for extent in scale.extents if extent > 1):
            return 1
        common = math.gcd(*scale.extents, *scale.offsets)
        limit = min(min(scale.extents) // SMALLEST, max(scale.extents) // WHOLE)
        exact = max((d for d in _divisors_of(common) if d <= limit), default=1)
        if max(scale.extents) // exact <= LARGE:
            return exact
        divisors = {d for extent in scale.extents for d in _divisors_of(extent) if exact < d <= limit}
        return max((d for d in divisors if _keeps_order(scale, d)), default=exact)

    def divisor(self, digits: Iterable[Digit], chosen: dict[int, int]) -> int:
        """By how much a dim shrinks."""
        return math.prod(chosen[digit.scale] for digit in self.resolve(digits))


def divided(position: int, divisor: int) -> int:
    """A position along a dim that shrinks: what stands next to a multiple of the divisor stands next to it then, too."""
    whole, rest = divmod(position, divisor)
    if divisor > 8 * NEAR and rest <= NEAR:
        return whole + rest
    if divisor > 8 * NEAR and divisor - rest <= NEAR:
        return whole + 1 - (divisor - rest)
    return whole


def _keeps_order(scale: _Scale, divisor: int) -> bool:
    """Whether all positions stand next to multiples of the divisor, and are as many in the same order when the dim has shrunk."""
    places = sorted({0, *scale.extents, *scale.offsets})
    if divisor <= 8 * NEAR or any(min(place % divisor, -place % divisor) > NEAR for place in places):
        return False
    shrunk = [divided(place, divisor) for place in places]
    return all(a < b for a, b in itertools.pairwise(shrunk))


def _divisors_of(number: int) -> list[int]:
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return [*small, *(number // d for d in reversed(small))]
