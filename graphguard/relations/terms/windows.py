"""References into kernels: which element of a kernel each element of a tensor is.

A reference is ``(kernel, offsets, dims, window)``: element (i0, i1, ...) of the tensor is the kernel at the coordinates ``offsets`` plus, for every
dim, the digits of its index in mixed radix, each times its stride along its axis; the kernel's reduced axes run over ``window``.  Layout
operators rewrite references and nothing else.
"""

from __future__ import annotations

import itertools
from math import gcd

from graphguard.relations.algebra import Unsupported
from graphguard.relations.terms.kernels import Digit, Digits, Expression, Factor, Kernel, Ref


class Misaligned(Unsupported):
    """Two mixed-radix maps of one dim have no common refinement; ``dim`` must be taken apart first."""

    def __init__(self, dim: int) -> None:
        super().__init__("a reshape that mixes dims of coprime extents")
        self.dim = dim


def extent(digits: Digits) -> int:
    """Number of indices that the digits count."""
    total = 1
    for digit in digits:
        total *= digit[2]
    return total


def joined(digits: list[Digit] | Digits) -> Digits:
    """The same map with as few digits as possible."""
    if len(digits) < 2:
        return tuple(digits) if digits and digits[0][2] != 1 else ()
    out: list[Digit] = []
    for digit in digits:
        if digit[2] == 1:
            continue
        if out:
            axis, stride, size = out[-1]
            if axis == digit[0] and (axis < 0 or stride == digit[1] * digit[2]):
                out[-1] = (axis, digit[1], size * digit[2])
                continue
        out.append(digit)
    return tuple(out)


def repeat(size: int) -> Digits:
    """A dim along which nothing changes."""
    return ((-1, 0, size),) if size != 1 else ()


def whole(kernel: Kernel) -> Ref:
    """The kernel itself as a tensor."""
    dims: tuple[Digits, ...] = tuple(((axis, 1, size),) if size != 1 else () for axis, size in enumerate(kernel.shape))
    return (kernel, (0,) * len(kernel.shape), dims, tuple((0, size) for size in kernel.reduced))


def sliced(ref: Ref, dim: int, low: int, high: int) -> list[tuple[int, int, Ref]]:
    """References for [low, high) along a dim: one where the cut meets the radix, up to three where not."""
    kernel, offsets, dims, window = ref
    digits = dims[dim]
    if not digits or (low == 0 and high == extent(digits)):
        return [(low, high, ref)]
    if len(digits) == 1:
        axis, stride, _ = digits[0]
        kept: Digits = ((axis, stride, high - low),) if high - low != 1 else ()
        if axis >= 0 and low:
            offsets = (*offsets[:axis], offsets[axis] + low * stride, *offsets[axis + 1 :])
        return [(low, high, (kernel, offsets, (*dims[:dim], kept, *dims[dim + 1 :]), window))]
    out = []
    for start, stop, shift, kept_digits in _cut(digits, low, high):
        moved = list(offsets)
        for axis, amount in shift:
            moved[axis] += amount
        out.append((start, stop, (kernel, tuple(moved), (*dims[:dim], joined(kept_digits), *dims[dim + 1 :]), window)))
    return out


_Cut = tuple[int, int, tuple[tuple[int, int], ...], Digits]


def _cut(digits: Digits, low: int, high: int) -> list[_Cut]:
    """Ranges of [low, high), each with the shift of its axes and its own digits."""
    if not digits:
        return [(low, high, (), ())]
    axis, stride, _ = digits[0]
    inner = extent(digits[1:])
    if low % inner == 0 and high % inner == 0:
        shift = ((axis, low // inner * stride),) if axis >= 0 else ()
        return [(low, high, shift, ((axis, stride, (high - low) // inner), *digits[1:]))]
    first, last = low // inner, (high - 1) // inner
    cuts = [low]
    if first != last:
        if low % inner:
            cuts.append((first + 1) * inner)
        if high % inner and last * inner > cuts[-1]:
            cuts.append(last * inner)
    cuts.append(high)
    out: list[_Cut] = []
    for start, stop in itertools.pairwise(cuts):
        if start % inner == 0 and stop % inner == 0:
            out += _cut(digits, start, stop)
            continue
        whole_part = start // inner
        base = whole_part * inner
        mine = ((axis, whole_part * stride),) if axis >= 0 else ()
        out += [
            (a + base, b + base, (*mine, *shift), kept)
            for a, b, shift, kept in _cut(digits[1:], start - base, stop - base)
        ]
    return out


def split(digits: Digits, sizes: list[int]) -> list[Digits] | None:
    """The digits dealt out to dims of the given extents (outermost first); None where a dim would cut a digit unevenly."""
    rest = list(digits)
    out: list[Digits] = []
    for size in reversed(sizes):
        need = size
        mine: list[Digit] = []
        while need > 1:
            if not rest:
                return None
            digit = rest.pop()
            axis, stride, count = digit
            if need % count == 0:
                mine.append(digit)
                need //= count
            elif count % need == 0:
                mine.append((axis, stride, need))
                rest.append((axis, stride * need, count // need))
                need = 1
            else:
                return None
        if len(mine) > 1:
            mine.reverse()
            out.append(joined(mine))
        else:
            out.append(tuple(mine))
    out.reverse()
    return out if not rest else None


def appended(first: Ref, second: Ref, dim: int, first_extent: int, second_extent: int) -> Ref | None:
    """One reference that covers the first and then the second along a dim, if there is one."""
    if first[0] is not second[0] or first[3] != second[3]:
        return None
    kernel, offsets, dims, window = first
    other = second[2]
    for index, digits in enumerate(dims):
        if index != dim and digits != other[index]:
            return None
    total = first_extent + second_extent
    if offsets == second[1]:
        if all(digit[0] < 0 for digit in dims[dim]) and all(digit[0] < 0 for digit in other[dim]):
            return (kernel, offsets, (*dims[:dim], repeat(total), *dims[dim + 1 :]), window)
        return None
    moved = [(axis, b - a) for axis, (a, b) in enumerate(zip(offsets, second[1], strict=True)) if a != b]
    if len(moved) != 1:
        return None
    longer = _lengthened(kernel, moved[0], dims[dim], other[dim], first_extent, second_extent)
    return None if longer is None else (kernel, offsets, (*dims[:dim], longer, *dims[dim + 1 :]), window)


def _lengthened(
    kernel: Kernel, moved: tuple[int, int], mine: Digits, other: Digits, first: int, second: int
) -> Digits | None:
    axis, distance = moved
    for shared in range(min(len(mine), len(other)) + 1):
        rest = mine[len(mine) - shared :]
        if rest != other[len(other) - shared :]:
            continue
        a, b = mine[: len(mine) - shared], other[: len(other) - shared]
        if len(a) > 1 or len(b) > 1 or (a and a[0][0] != axis) or (b and b[0][0] != axis):
            continue
        inner = extent(rest)
        if first % inner or second % inner:
            continue
        count_a, count_b = first // inner, second // inner
        stride = a[0][1] if a else b[0][1] if b else distance
        if (b and b[0][1] != stride) or distance != count_a * stride:
            continue
        if not a and not b and not _proper(kernel, axis, distance, rest):
            continue
        return joined(((axis, stride, count_a + count_b), *rest))
    return None


def _proper(kernel: Kernel, axis: int, distance: int, rest: Digits) -> bool:
    """Whether a new digit of that stride fits the radix of its axis; others would make later merges depend on their order."""
    if kernel.shape[axis] % distance:
        return False
    below = rest[0][1] * rest[0][2] if rest and rest[0][0] == axis else 1
    return distance % below == 0


def refine(refs: list[Ref], extents: tuple[int, ...]) -> tuple[list[int], list[list[int]], list[list[Expression]]]:
    """A common refinement: extents of digits, the digits of every dim (outermost first), and per reference its expressions.

    Raises ``Misaligned`` where two references divide one dim in ways that do not nest.
    """
    if len(refs) == 1:
        return _as_it_is(refs[0])
    sizes: list[int] = []
    dims: list[list[int]] = []
    used: list[list[Expression]] = [[] for _ in refs]
    for dim, rows in enumerate(zip(*[ref[2] for ref in refs], strict=True)):
        size = extents[dim]
        if size == 1:
            dims.append([])
            continue
        for row in rows:
            if len(row) != 1:
                dims.append(_divided(dim, size, rows, sizes, used))
                break
        else:
            digit = len(sizes)
            sizes.append(size)
            dims.append([digit])
            for steps, row in zip(used, rows, strict=True):
                axis, stride, _ = row[0]
                if axis >= 0:
                    steps.append((axis, digit, stride))
    return sizes, dims, used


def _divided(
    dim: int, size: int, rows: tuple[Digits, ...], sizes: list[int], used: list[list[Expression]]
) -> list[int]:
    """The digits of one dim, outermost first, that divide all the rows; added to ``sizes``, and to what each reference uses."""
    mine: list[int] = []
    stacks = [list(row) for row in rows]
    left = size
    while left > 1:
        step = 0
        for stack in stacks:
            step = gcd(step, stack[-1][2])
        if step == 1:
            raise Misaligned(dim)
        left //= step
        digit = len(sizes)
        sizes.append(step)
        mine.append(digit)
        for index, stack in enumerate(stacks):
            axis, stride, count = stack.pop()
            if count != step:
                stack.append((axis, stride * step, count // step))
            if axis >= 0:
                used[index].append((axis, digit, stride))
    mine.reverse()
    return mine


def _as_it_is(ref: Ref) -> tuple[list[int], list[list[int]], list[list[Expression]]]:
    """The digits of one reference, which nothing divides."""
    sizes: list[int] = []
    dims: list[list[int]] = []
    used: list[Expression] = []
    for digits in ref[2]:
        mine: list[int] = []
        for axis, stride, size in reversed(digits):
            if axis >= 0:
                used.append((axis, len(sizes), stride))
            mine.append(len(sizes))
            sizes.append(size)
        mine.reverse()
        dims.append(mine)
    return sizes, dims, [used]


def through(ref: Ref, factor: Factor) -> Ref | None:
    """The part of a kernel that a reference to the kernel looks at, as a reference of its own; None where one label moves two axes."""
    kernel, _, window, base, steps = factor
    offsets = list(base)
    where: dict[int, tuple[int, int]] = {}
    free = len(ref[1])
    for axis, label, stride in steps:
        if label >= free or label in where:
            return None
        where[label] = (axis, stride)
        offsets[axis] += ref[1][label] * stride
    dims = []
    for digits in ref[2]:
        mine: list[Digit] = []
        for label, step, size in digits:
            axis, stride = where.get(label, (-1, 0))
            mine.append((axis, step * stride, size))
        dims.append(joined(mine))
    return (kernel, tuple(offsets), tuple(dims), window)
