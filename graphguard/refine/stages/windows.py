"""A rank's tensor as windows of one tensor of the specification, so that both can be cut off there.

Where the specification's tensor and a rank's are references to one kernel, and the former runs over the kernel's axes in mixed radix, every element of the
rank's tensor is a known element of the specification's: it remains so when the specification's tensor becomes an unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TypeAlias

from graphguard.relations.algebra import Unsupported
from graphguard.relations.sums.linear import close
from graphguard.relations.terms.kernels import Digit, Digits, Kernel, Number, Ref, Term, Universe
from graphguard.relations.terms.values import Box, Grid, NormalValue, coarsened, extents_of, merged
from graphguard.relations.terms.windows import joined

Place: TypeAlias = tuple[
    tuple[int, ...], tuple[Digits, ...]
]  # offsets and digits along the dims of the specification's tensor


@dataclass(frozen=True, slots=True)
class Windowed:
    """A tensor by its pieces, each a multiple of a window of another tensor, or zero."""

    shape: tuple[int, ...]
    grid: Grid
    pieces: tuple[tuple[Box, tuple[int, int], Place | None], ...]

    def is_whole(self, shape: tuple[object, ...]) -> bool:
        """Whether it is the other tensor itself, which has this shape."""
        if self.shape != shape or len(self.pieces) != 1 or any(len(digits) > 1 for digits in self.grid):
            return False
        (box, factor, place), offsets = self.pieces[0], (0,) * len(self.shape)
        dims = tuple(((dim, 1, size),) if size != 1 else () for dim, size in enumerate(self.shape))
        return extents_of(box) == shape and factor == (1, 1) and place == (offsets, dims)

    def row(self) -> tuple[object, ...]:
        """The same as nested tuples of integers."""
        return (self.shape, self.grid, self.pieces)

    def of(self, kernel: Kernel) -> NormalValue:
        """The tensor where the other one is the whole of a kernel."""
        pieces = []
        for box, (top, bottom), place in self.pieces:
            terms: tuple[Term, ...] = ()
            if place is not None:
                factor = top if bottom == 1 else Fraction(top, bottom)
                terms = ((factor, (kernel, place[0], place[1], ())),)
            pieces.append((box, terms))
        return coarsened(NormalValue(self.shape, "float", merged(pieces), self.grid))


@dataclass(frozen=True, slots=True)
class _Digit:
    """One digit of the specification's tensor along an axis of the kernel, and which step along which of its dims it is."""

    stride: int
    size: int
    dim: int
    step: int


@dataclass(frozen=True, slots=True)
class _Piece:
    """One piece of the specification's tensor: its reference, and its digits by axis of the kernel, outermost first."""

    factor: Number
    ref: Ref
    origin: tuple[int, ...]
    axes: dict[int, list[_Digit]]


class Abstraction:
    """A tensor of the specification that is about to become an unknown."""

    def __init__(self, universe: Universe, whole: NormalValue) -> None:
        self.universe = universe
        self.pieces: list[_Piece] = []
        self.possible = whole.kind == "float" and not any(
            ref[0].infinite for _, terms in whole.pieces for _, ref in terms
        )
        if self.possible:
            self.pieces = [piece for box, terms in whole.pieces for piece in self._piece(whole, box, terms)]

    def _piece(self, whole: NormalValue, box: Box, terms: tuple[Term, ...]) -> list[_Piece]:
        try:
            factor, ref = close(self.universe, terms, extents_of(box))
        except Unsupported:
            return []
        if factor == 0 or ref[0].kind == "one":
            return []
        origin = [0] * len(whole.shape)
        axes: dict[int, list[_Digit]] = {}
        cell = 0
        for dim, grid in enumerate(whole.grid):
            step = 1
            for place in reversed(range(len(grid))):
                origin[dim] += box[cell + place][0] * step
                inner = step
                for axis, stride, size in reversed(ref[2][cell + place]):
                    if axis >= 0:
                        axes.setdefault(axis, []).append(_Digit(stride, size, dim, inner))
                    inner *= size
                step *= grid[place]
            cell += len(grid)
        for digits in axes.values():
            digits.sort(key=lambda digit: -digit.stride)
        if not all(_nested(digits) for digits in axes.values()):
            return []
        return [_Piece(factor, ref, tuple(origin), axes)]

    def window(self, value: NormalValue) -> Windowed | None:
        """Another tensor as windows of this one; None where it is not known to be."""
        if not self.possible or value.kind != "float":
            return None
        out: list[tuple[Box, tuple[int, int], Place | None]] = []
        for box, terms in value.pieces:
            try:
                factor, ref = close(self.universe, terms, extents_of(box))
            except Unsupported:
                return None
            if factor == 0:
                out.append((box, (0, 1), None))
                continue
            found = next(filter(None, (_within(piece, factor, ref) for piece in self.pieces)), None)
            if found is None:
                return None
            out.append((box, *found))
        return Windowed(value.shape, value.grid, tuple(out))


def _nested(digits: list[_Digit]) -> bool:
    """Whether the digits never overlap: then a coordinate has one place."""
    return all(digit.stride > 0 for digit in digits) and all(
        inner.stride * inner.size <= outer.stride for outer, inner in pairwise(digits)
    )


def _within(piece: _Piece, factor: Number, ref: Ref) -> tuple[tuple[int, int], Place] | None:
    """The multiple, and the place within the piece's tensor, of a reference to the same kernel."""
    if ref[0] is not piece.ref[0] or ref[3] != piece.ref[3]:
        return None
    offsets = list(piece.origin)
    room: dict[int, list[int]] = {}
    for axis in range(len(ref[1])):
        digits = piece.axes.get(axis, [])
        distance = ref[1][axis] - piece.ref[1][axis]
        left = []
        for digit in digits:
            at, distance = divmod(distance, digit.stride)
            offsets[digit.dim] += at * digit.step
            left.append(digit.size - 1 - at)
            if at < 0:
                return None
        if distance:
            return None
        room[axis] = left
    dims = []
    for row in ref[2]:
        mine: list[Digit] = []
        for axis, stride, size in row:
            if axis < 0:
                mine.append((-1, 0, size))
                continue
            placed = _dealt(piece.axes.get(axis, []), room[axis], stride, size)
            if placed is None:
                return None
            mine += placed
        dims.append(joined(mine))
    if any(free < 0 for left in room.values() for free in left):
        return None
    ratio = Fraction(factor) / Fraction(piece.factor)
    return (ratio.numerator, ratio.denominator), (tuple(offsets), tuple(dims))


def _dealt(digits: Sequence[_Digit], room: list[int], stride: int, size: int) -> list[Digit] | None:
    """One digit of a reference as digits along the dims of the tensor that it lies in, outermost first; what they take up is taken off ``room``."""
    out: list[Digit] = []
    for place in range(len(digits) - 1, -1, -1):
        digit = digits[place]
        outer = digits[place - 1].stride if place else None
        if size == 1 or (outer is not None and stride >= outer):
            continue
        if stride % digit.stride or stride <= 0:
            return None
        step = stride // digit.stride
        count = size
        if outer is not None and stride * (size - 1) >= outer:  # goes on along the next digit
            if outer % stride or size % (outer // stride):
                return None
            count = outer // stride
        room[place] -= step * (count - 1)
        out.append((digit.dim, digit.step * step, count))
        stride, size = stride * count, size // count
    if size != 1:
        return None
    out.reverse()
    return out
