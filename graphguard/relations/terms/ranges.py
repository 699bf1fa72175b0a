"""What the specification's look-ups of parts of an index need, and what that says of the whole.

A range is known of a kernel as a whole.  A look-up of all of it states one at once; look-ups of parts (tokens without the last, tokens without the first)
state one together, and only if every element is looked up: a program that looks up some tokens of a line says nothing of the others.  So it is found out
without making use of it, and the specification is evaluated again.
"""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np

from graphguard.relations.terms.kernels import UNBOUNDED, Digits, Ref, Universe

_LARGEST: Final = 1 << 22  # elements that are marked one by one


def note(universe: Universe, ref: Ref, low: int, high: int) -> None:
    """A look-up of the specification needs ``low <= element < high`` of the elements that a reference shows."""
    universe.needs.setdefault(ref[0], {})[ref[1], ref[2], low, high] = None


def from_parts(universe: Universe) -> tuple[dict[str, tuple[int, int]], set[str]]:
    """By name, the ranges that look-ups of parts state together; and of which unknowns they state none."""
    facts: dict[str, tuple[int, int]] = {}
    none: set[str] = set()
    for kernel, needs in universe.needs.items():
        low, high = universe.facts.get(kernel.name, (-UNBOUNDED, UNBOUNDED))
        if prod(kernel.shape) <= _LARGEST:
            least, most = np.full(kernel.shape, low), np.full(kernel.shape, high)
            for offsets, dims, first, stop in needs:
                at = _places(offsets, dims)
                least[at] = np.maximum(least[at], first)
                most[at] = np.minimum(most[at], stop)
            low, high = int(least.min()), int(most.max())
        if low > -UNBOUNDED and high < UNBOUNDED:
            facts[kernel.name] = (low, high)
        else:
            none.add(kernel.name)
    return facts, none


def is_whole(ref: Ref) -> bool:
    """Whether a reference looks at every element of its kernel."""
    kernel, offsets, dims, _ = ref
    counts = [1] * len(offsets)
    for digits in dims:
        for axis, _, size in digits:
            if axis >= 0:
                counts[axis] *= size
    return not any(offsets) and tuple(counts) == kernel.shape


def _places(offsets: tuple[int, ...], dims: tuple[Digits, ...]) -> tuple[np.ndarray, ...]:
    """The coordinates that a reference looks at, by axis."""
    moving = [digit for digits in dims for digit in digits if digit[0] >= 0]
    at = [np.full((1,) * len(moving), offset) for offset in offsets]
    for place, (axis, stride, size) in enumerate(moving):
        steps = stride * np.arange(size)
        at[axis] = at[axis] + steps.reshape(tuple(size if i == place else 1 for i in range(len(moving))))
    return tuple(np.broadcast_arrays(*at))
