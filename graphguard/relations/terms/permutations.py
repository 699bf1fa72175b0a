"""Positions that are all different: sorting gives a permutation, and a permutation has an inverse.

With ``p`` the positions of a sorted line, ``onehot(p)[j, v]`` is a matrix with a single 1 in every row and every column: two rows with one column are one
row, a whole column adds up to 1, and ``sum over j of j * onehot(p)[j, v]`` is the inverse, whose one-hot is the transpose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from graphguard.relations.terms.kernels import Factor, Kernel, Ref
from graphguard.relations.terms.values import NormalValue

#: Functions of a line whose results are positions on it, none twice; those in the second set name all of them.
_DISTINCT: Final = frozenset(("argsort", "topk.indices"))
_WHOLE: Final = frozenset(("argsort",))


def line_of(kernel: Kernel) -> int | None:
    """The axis along which an integer kernel takes no value twice, for every place on its other axes."""
    if kernel.kind != "opaque" or kernel.name not in _DISTINCT or kernel.type != "int":
        return None
    lines = [axis for axis, mark in kernel.core.items() if isinstance(mark, tuple) and mark[0] == "B"]
    return lines[0] if len(lines) == 1 and lines[0] < len(kernel.shape) else None


def permuted(kernel: Kernel) -> int | None:
    """The axis along which an integer kernel takes every value from 0 to its extent once."""
    line = line_of(kernel) if kernel.name in _WHOLE else None
    return line if line is not None and kernel.range == (0, kernel.shape[line]) else None


@dataclass(frozen=True, slots=True)
class Inverse:
    """``sum over j of j * onehot(p)[j, v]``: ``hot`` is the factor onehot(p), whose place j is the kernel's reduced label; ``axis`` is that of v."""

    hot: Factor
    axis: int
    extent: int


def inverse_of(kernel: Kernel) -> Inverse | None:
    """A kernel as the inverse of a permutation, at 0 <= v < extent and with its whole window; None for any other."""
    if kernel.kind != "product" or len(kernel.factors) != 2 or len(kernel.reduced) != 1:
        return None
    place = len(kernel.shape)
    index, hot = sorted(kernel.factors, key=lambda factor: factor[0].kind != "iota")
    if index[0].kind != "iota" or index[1] != 1 or index[3] != (0,) or index[4] != ((0, place, 1),):
        return None
    if hot[0].kind != "onehot" or hot[1] != 1:
        return None
    line = permuted(hot[0].factors[0][0])
    column = len(hot[0].shape) - 1
    across = [(label, stride) for axis, label, stride in hot[4] if axis == column]
    down = [(axis, stride) for axis, label, stride in hot[4] if label == place or axis == line]
    if line is None or down != [(line, 1)] or hot[3][line] or len(across) != 1 or across[0][1] != 1 or hot[3][column]:
        return None
    return Inverse(hot, across[0][0], hot[0].shape[line])


def known_range(kernel: Kernel) -> tuple[int, int] | None:
    """What is known of the integers of a kernel, as a half-open range."""
    if kernel.range is not None:
        return kernel.range
    inverse = inverse_of(kernel)
    return None if inverse is None else (0, inverse.extent)


def is_inverted(ref: Ref) -> Inverse | None:
    """A reference that looks at an inverse where it is one."""
    inverse = inverse_of(ref[0])
    if inverse is None or ref[3] != ((0, inverse.extent),):
        return None
    low, high = spanned(ref, inverse.axis)
    return inverse if low >= 0 and high < inverse.extent else None


def spanned(ref: Ref, axis: int) -> tuple[int, int]:
    """The first and the last coordinate of an axis that a reference looks at."""
    steps = [stride * (size - 1) for digits in ref[2] for at, stride, size in digits if at == axis]
    return ref[1][axis] + sum(s for s in steps if s < 0), ref[1][axis] + sum(s for s in steps if s > 0)


def distinct(value: NormalValue, dim: int) -> bool:
    """Whether no two integers along a dim are seen to be equal."""
    if value.shape[dim] == 1:
        return True
    if len(value.pieces) != 1 or len(value.grid[dim]) != 1:
        return False
    cell = sum(len(digits) for digits in value.grid[:dim])
    moving = [ref for _, ref in value.pieces[0][1] if ref[0].kind != "one"]
    if len(moving) != 1:
        return False
    inverse = is_inverted(moving[0])
    line = line_of(moving[0][0]) if inverse is None else inverse.axis
    return line is not None and [axis for axis, _, _ in moving[0][2][cell]] == [line]


def at_most_once(value: NormalValue) -> bool:
    """Whether all numbers are seen to be 0 or 1: truths, and how often a line of integers that are all different takes a value."""
    return all(
        len(terms) == 0
        or (len(terms) == 1 and terms[0][0] == 1 and (terms[0][1][0].truth or _counts_once(terms[0][1][0])))
        for _, terms in value.pieces
    )


def _counts_once(kernel: Kernel) -> bool:
    """``sum over j of onehot(p)[j, v]`` where no two of p are equal: at most one of the summands is 1, of whichever places they are."""
    if kernel.kind != "product" or len(kernel.factors) != 1 or len(kernel.reduced) != 1:
        return False
    ((hot, power, _, _, steps),) = kernel.factors
    if hot.kind != "onehot" or power != 1:
        return False
    positions, *_, within = hot.factors[0]
    line = line_of(positions)
    label = [label for axis, label, _ in within if axis == line]
    if line is None or len(label) != 1 or sum(one == label[0] for _, one, _ in within) != 1:
        return False
    return [axis for axis, one, _ in steps if one == len(kernel.shape)] == label
