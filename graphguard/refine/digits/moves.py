"""What only all ranks together have: numbers that depend on where a rank is, windows that begin there, and sums over digits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from graphguard.refine.digits.algebra import Stacked
from graphguard.refine.digits.stacks import Stack
from graphguard.relations.algebra import Unsupported

#: So many numbers are written down where they are no affine function of the digits.
_LARGEST_TABLE: Final = 4096
#: Steps times coordinates of smaller numbers, on so many ranks, are numbers of int64.
_TOO_LARGE: Final = 1 << 40
_MOST_RANKS: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Numbers:
    """An integer on every rank: ``base`` and so much more for each step along a digit; ``table`` has all of them."""

    table: np.ndarray
    base: int
    steps: tuple[int, ...] | None

    @classmethod
    def of(cls, numbers: Sequence[int], sizes: Sequence[int]) -> Numbers:
        """The integers of all ranks in order; ``steps`` is None where they are not affine, which is looked at on every rank."""
        if any(abs(number) >= _TOO_LARGE for number in numbers) or len(numbers) > _MOST_RANKS:
            raise Unsupported("a number that differs between ranks and is very large")
        table = np.array(numbers, dtype=np.int64).reshape(tuple(sizes))
        base = int(table.flat[0])
        steps = []
        affine = np.full(table.shape, base, dtype=np.int64)
        for digit, size in enumerate(sizes):
            first = tuple(int(other == digit) for other in range(len(sizes)))
            step = int(table[first]) - base if size > 1 else 0
            steps.append(step)
            lead = tuple(size if other == digit else 1 for other in range(len(sizes)))
            affine = affine + (np.arange(size, dtype=np.int64) * step).reshape(lead)
        return cls(table, base, tuple(steps) if bool((affine == table).all()) else None)


def coordinate(a: Stacked, numbers: Numbers) -> Stack:
    """A whole number on every rank, as a tensor without dims."""
    if numbers.steps is None:
        if numbers.table.size > _LARGEST_TABLE:
            raise Unsupported("a number that is no affine function of where a rank is")
        return a.of(a.normal.literal(numbers.table))
    value = a.normal.full(a.sizes, Fraction(numbers.base), "int")
    for digit, (size, step) in enumerate(zip(a.sizes, numbers.steps, strict=True)):
        if step:
            lead = tuple(size if other == digit else 1 for other in range(len(a.sizes)))
            along = a.normal.reshape(a.normal.scale(a.normal.iota(size), Fraction(step)), lead)
            value = a.normal.add([value, a.normal.expand(along, a.sizes)])
    return a.of(value)


def window(a: Stacked, v: Stack, dim: int, starts: Numbers, length: int) -> Stack:
    """So many elements of a dim from where each rank's begin; they must lie within it."""
    low, high = int(starts.table.min()), int(starts.table.max())
    if low < 0 or high + length > v.shape[dim]:
        raise Unsupported("a window that is cut off by the end of its dim")
    if low == high:
        return a.slice(v, dim, low, low + length)
    cut = _as_digits(a, v, dim, starts, length)
    return _selected(a, v, dim, starts, length) if cut is None else cut


def _as_digits(a: Stacked, v: Stack, dim: int, starts: Numbers, length: int) -> Stack | None:
    """Windows side by side are the digits of the dim, those of the longest step first; None where they are not side by side, or ranks have not the same tensor."""
    steps = starts.steps
    if steps is None:
        return None
    moving = sorted((digit for digit, step in enumerate(steps) if step), key=lambda digit: -steps[digit])
    alike = set(a.alike(v))
    if any(steps[digit] < 0 for digit in moving) or not alike.issuperset(moving):
        return None
    least = steps[moving[-1]]
    inside = least
    for digit in reversed(moving):
        if steps[digit] != inside:
            return None
        inside *= a.sizes[digit]
    if least < length or starts.base + inside > v.shape[dim]:
        return None
    count, normal = len(a.sizes), a.normal
    value = a.without(v.value, moving)
    value = normal.slice(value, dim + count, starts.base, starts.base + inside)
    lead, before, after = value.shape[:count], v.shape[:dim], v.shape[dim + 1 :]
    value = normal.reshape(value, (*lead, *before, *(a.sizes[digit] for digit in moving), least, *after))
    places = {digit: count + dim + at for at, digit in enumerate(moving)}
    order = [places.get(digit, digit) for digit in range(count)]
    order += [at for at in range(len(value.shape)) if at not in order]  # digits that moved leave dims of one
    value = normal.reshape(normal.permute(value, order), (*a.sizes, *before, least, *after))
    return a.slice(a.of(value), dim, 0, length)


def _selected(a: Stacked, v: Stack, dim: int, starts: Numbers, length: int) -> Stack:
    """The sum over all elements of the dim of those whose position is where the rank's begin, and so much more."""
    first = a.expand(a.reshape(coordinate(a, starts), (1,)), (length,))
    hot = a.one_hot(a.add([first, a.iota(length)]), v.shape[dim])
    if v.kind == "bool":
        raise Unsupported("truths by place")
    letters = "abcdefghijkl"[: len(v.shape)]
    if len(letters) < len(v.shape):
        raise Unsupported("a tensor of many dims by place")
    found = a.contract([(v, letters), (hot, "q" + letters[dim])], letters.replace(letters[dim], "q"))
    return a.of_kind(found, v.kind)


def put(a: Stacked, v: Stack, dim: int, starts: Numbers, extent: int) -> Stack:
    """Zeros of an extent along a dim, with the tensor from where each rank's begins."""
    length = v.shape[dim]
    if int(starts.table.min()) < 0 or int(starts.table.max()) + length > extent or v.kind != "float":
        raise Unsupported("a window that is cut off by the end of its dim")
    first = a.expand(a.reshape(coordinate(a, starts), (1,)), (length,))
    hot = a.one_hot(a.add([first, a.iota(length)]), extent)
    letters = "abcdefghijkl"[: len(v.shape)]
    if len(letters) < len(v.shape):
        raise Unsupported("a tensor of many dims by place")
    return a.contract([(v, letters), (hot, letters[dim] + "q")], letters.replace(letters[dim], "q"))


def total(a: Stacked, v: Stack, digits: Sequence[int], how: str) -> Stack:
    """What an all-reduce over digits gives; for floats, and sums of integers."""
    if v.kind != "float" and not (v.kind == "int" and how == "sum"):
        raise Unsupported(f"a total ({how}) of {v.kind}")
    normal = a.normal
    if how in ("sum", "avg"):
        value = normal.sum(v.value, digits)
    elif how == "max":
        value = normal.max_over(v.value, digits)
    elif how == "min":
        value = normal.scale(normal.max_over(normal.scale(v.value, Fraction(-1)), digits), Fraction(-1))
    else:
        raise Unsupported(f"a total by {how}")
    if how == "avg":
        value = normal.scale(value, Fraction(1, math.prod(a.sizes[digit] for digit in digits)))
    return a.spread(value, v.shape, digits)


def gathered(a: Stacked, v: Stack, digits: Sequence[int]) -> Stack:
    """The tensors at all places of some digits, in order, along a new dim in front."""
    count, normal = len(a.sizes), a.normal
    order = (*(d for d in range(count) if d not in digits), *digits, *range(count, count + len(v.shape)))
    shape = (math.prod(a.sizes[digit] for digit in digits), *v.shape)
    lead = tuple(1 if digit in digits else size for digit, size in enumerate(a.sizes))
    value = normal.reshape(normal.permute(v.value, order), (*lead, *shape))
    return a.of(normal.expand(value, (*a.sizes, *shape)))


def exchanged(a: Stacked, v: Stack, digits: Sequence[int]) -> Stack:
    """Of tensors along a dim in front, one for every place of some digits: those that are meant for a rank, in the order of the ranks they come from."""
    count, normal = len(a.sizes), a.normal
    places = tuple(a.sizes[digit] for digit in digits)
    value = normal.reshape(v.value, (*a.sizes, *places, *v.shape[1:]))
    order = list(range(len(value.shape)))
    for at, digit in enumerate(digits):
        order[digit], order[count + at] = order[count + at], order[digit]
    return a.of(normal.reshape(normal.permute(value, order), (*a.sizes, *v.shape)))


def scattered(a: Stacked, v: Stack, digits: Sequence[int], how: str) -> Stack:
    """Of tensors along a dim in front, one for every place of some digits: the total of those that are meant for a rank."""
    if v.kind != "float" or how not in ("sum", "avg"):
        raise Unsupported(f"a scattered total ({how}) of {v.kind}")
    summed = a.sum(exchanged(a, v, digits), (0,))
    return a.scale(summed, Fraction(1, v.shape[0])) if how == "avg" else summed


def at_place(a: Stacked, v: Stack, places: dict[int, int]) -> Stack:
    """What the rank at these places of some digits has."""
    value = v.value
    for digit, place in places.items():
        value = a.normal.slice(value, digit, place, place + 1)
    return a.of(a.normal.expand(value, (*a.sizes, *v.shape)))
