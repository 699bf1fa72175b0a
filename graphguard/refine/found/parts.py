"""Which part of a tensor another one is: the indices along each dim that it reads."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from graphguard.relations.terms.kernels import Digit, Digits, Ref
from graphguard.relations.terms.windows import extent, joined


def part_text(name: str, ref: Ref, target: Ref) -> str:
    """What ``ref`` is of the tensor ``name``, which is ``target`` of the same kernel: ``q``, ``q[:, 0:2]``, ``partial sum of q``, ``rearrangement of q[:, 0:2]``.

    Where the indices that it reads are no range along every dim, ``part of q (12 of 48 elements)``.
    """
    partial = "partial sum of " if ref[3] != target[3] else ""
    box = _box(ref, target)
    if box is None:
        mine, all_of_it = _elements(ref), _elements(target)
        if mine == all_of_it:
            return f"{partial}rearrangement of {name}"
        return f"{partial}part of {name} ({mine} of {all_of_it} elements)"
    sizes = [extent(digits) for digits in target[2]]
    ranges = [":" if len(read) == size else _slice(read) for read, size in zip(box, sizes, strict=True)]
    taken = name if all(each == ":" for each in ranges) else f"{name}[{', '.join(ranges)}]"
    as_it_lies = tuple(_restricted(digits, read) for digits, read in zip(target[2], box, strict=True))
    return f"{partial}{taken}" if as_it_lies == tuple(map(joined, ref[2])) else f"{partial}rearrangement of {taken}"


def _slice(read: range) -> str:
    return f"{read.start}:{read[-1] + 1}" + (f":{read.step}" if read.step > 1 and len(read) > 1 else "")


def _elements(ref: Ref) -> int:
    """How many elements of its kernel a reference reads; a repeat reads none anew."""
    return prod(count for digits in ref[2] for axis, _, count in digits if axis >= 0)


class _Place(NamedTuple):
    """A digit of the target: its stride along an axis, its extent, and where it stands."""

    stride: int
    extent: int
    dim: int
    number: int


def _box(ref: Ref, target: Ref) -> list[range] | None:
    """The range of indices along each of the target's dims that ``ref`` reads together with those of the other dims; None where it reads no such box."""
    read: dict[tuple[int, int], range] = {}
    for axis in range(len(ref[1])):
        places = sorted(
            _Place(stride, count, dim, number)
            for dim, digits in enumerate(target[2])
            for number, (at, stride, count) in enumerate(digits)
            if at == axis
        )
        mine = sorted((stride, count) for digits in ref[2] for at, stride, count in digits if at == axis)
        found = _along(places, mine, ref[1][axis] - target[1][axis])
        if found is None:
            return None
        read.update(found)
    box = [
        _together([read.get((dim, number), range(digit[2])) for number, digit in enumerate(digits)], digits)
        for dim, digits in enumerate(target[2])
    ]
    return None if None in box else [each for each in box if each is not None]


def _along(places: list[_Place], mine: list[tuple[int, int]], offset: int) -> dict[tuple[int, int], range] | None:
    """The range of every digit of the target along one axis that strides and extents from ``offset`` on go through."""
    if any(place.stride <= 0 for place in places) or any(stride <= 0 for stride, _ in mine):
        return None
    steps: dict[_Place, tuple[int, int]] = {}
    waiting: list[tuple[int, int]] = []
    for stride, count in mine:
        if waiting and waiting[-1][0] * waiting[-1][1] == stride:
            waiting[-1] = (waiting[-1][0], waiting[-1][1] * count)
        else:
            waiting.append((stride, count))
    while waiting:
        stride, count = waiting.pop()
        place = next((each for each in places if each.stride <= stride < each.stride * each.extent), None)
        if place is None or place in steps or stride % place.stride:
            return None
        step = stride // place.stride
        here = min(count, place.extent // step)
        if count % here or (here < count and place.extent % step):
            return None
        steps[place] = step, here
        if here < count:
            waiting.append((stride * here, count // here))
    found: dict[tuple[int, int], range] = {}
    for place in reversed(places):
        start, offset = divmod(offset, place.stride)
        step, count = steps.get(place, (1, 1))
        read = range(start, start + step * (count - 1) + 1, step)
        if start < 0 or read[-1] >= place.extent:
            return None
        found[place.dim, place.number] = read
    return found if offset == 0 else None


def _together(reads: list[range], digits: Digits) -> range | None:
    """The indices of a dim whose digits go through these ranges; None where they are no range."""
    inner, size = range(1), 1
    for read, (_, _, count) in zip(reversed(reads), reversed(digits), strict=True):
        if len(read) == 1:
            inner = range(read[0] * size + inner.start, read[0] * size + inner.stop, inner.step)
        elif len(inner) == size and read.step == 1:
            inner = range(read.start * size, read.stop * size)
        elif len(inner) == 1:
            inner = range(read.start * size + inner[0], read[-1] * size + inner[0] + 1, read.step * size)
        else:
            return None
        size *= count
    return inner


def _restricted(digits: Digits, read: range) -> Digits:
    """The digits of a dim of which only a range is kept, as few as possible."""
    kept: list[Digit] = []
    count = len(read)
    size = 1
    for axis, stride, indices in reversed(digits):
        step = max(read.step // size, 1) if count > 1 else 1
        here = min(count, indices // step) if read.step < size * indices else 1
        if here > 1:
            kept.append((axis, stride * step, here))
            count //= here
        size *= indices
    return joined(list(reversed(kept)))


__all__ = ["part_text"]
