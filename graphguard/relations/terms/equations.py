"""Kernels without an equation on positions that one with it may be: ``sum over k of x[y + k] w[k]`` and ``sum over h, k of x[h] w[k] [h = y + k]``.

Where a window of a convolution reaches over the border of what exists, its equation stays and cuts off what is outside; where it does not, the equation is solved
and one label is gone.  To be matched against a kernel that has it, the label is put back, over all of its coordinates: the equation holds for one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, islice
from typing import Final

from graphguard.relations.terms.kernels import UNBOUNDED, Kernel
from graphguard.relations.terms.orientation import is_delta
from graphguard.relations.terms.parts import Part

_TRIED: Final = 24  # choices of coordinates for one kernel


def equations(kernel: Kernel) -> list[int]:
    """The places of a kernel's factors that are equations on positions."""
    return [place for place, factor in enumerate(kernel.factors) if is_delta(factor[0]) and factor[1] == 1]


def unsolved(
    model: Kernel, parts: list[Part], sizes: list[int], reduced: set[int]
) -> Iterator[tuple[list[Part], list[int], set[int]]]:
    """Parts, digits and summed digits of the same product with as many equations as the model has, in the ways that it may have them."""
    bound = dict(_bound(model))
    free = [(place, *key) for place, part in enumerate(parts) for key in bound if key[0] is part.kernel]
    for chosen in islice(combinations(free, len(model.factors) - len(parts)), _TRIED):
        copies, extents, summed = [part.copy() for part in parts], list(sizes), set(reduced)
        for place, kernel, axis in chosen:
            copies.append(_tied(copies[place], axis, bound[kernel, axis], len(extents)))
            summed.add(len(extents))
            extents.append(kernel.shape[axis])
        yield copies, extents, summed


def _bound(model: Kernel) -> Iterator[tuple[tuple[Kernel, int], Kernel]]:
    """Factors of the model, and axes, along which a summed label of an equation moves alone, step by step; and that equation."""
    for equation in (model.factors[place] for place in equations(model)):
        labels = {label for _, label, stride in equation[4] if label >= len(model.shape) and abs(stride) == 1}
        for kernel, _, _, _, moves in model.factors:
            for axis, label, step in moves:
                alone = sum(1 for move in moves if move[0] == axis) == 1 and abs(step) == 1
                if label in labels and alone and kernel.shape[axis] != UNBOUNDED:
                    yield (kernel, axis), equation[0]


def _tied(part: Part, axis: int, equation: Kernel, digit: int) -> Part:
    """Let a new digit move the part along an axis, in place; the equation that ties it to what moved the part there before."""
    moves = [(other, -stride) for at, other, stride in part.expressions if at == axis]
    tie = Part(equation, 1, (), [-part.offsets[axis]], [(0, digit, 1), *((0, other, step) for other, step in moves)])
    part.expressions = [step for step in part.expressions if step[0] != axis] + [(axis, digit, 1)]
    part.offsets[axis] = 0
    return tie
