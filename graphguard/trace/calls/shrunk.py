"""Smaller operands that lie in memory as large ones do, on which PyTorch's kernels can be asked what they do with the large ones.

Whether shapes fit, and in which order results lie, depends on which extents are equal, which are one, which is the longer, and which divides which.  All of this stays as it is:
``(4096, 32, 128) @ (128, 11008)`` is asked as ``(32, 8, 16) @ (16, 48)``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import torch

from graphguard.trace.calls.geometry import stride_of

KEPT: Final = 4  # extents up to this one, of which kernels may be the only number, stay as they are
_DIVISORS: Final = (2, 3, 4)
_LONGEST: Final = 96


class Order(tuple[int, ...]):
    """The dims of a tensor that leaves no memory out, the one with the longest steps first."""

    __slots__ = ()

    def steps(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Strides for a tensor of these sizes."""
        found, step = [0] * len(sizes), 1
        for dim in reversed(self):
            found[dim], step = step, step * max(sizes[dim], 1)
        return tuple(found)


def order_of(tensor: torch.Tensor) -> Order | None:
    """The order in which a tensor's dims lie; None where memory is left out or read twice."""
    steps = stride_of(tensor)
    order = Order(sorted(range(tensor.dim()), key=lambda dim: (-steps[dim], dim)))
    dense = order.steps(tensor.shape)
    known = all(size == 1 or step == own for size, step, own in zip(tensor.shape, dense, steps, strict=True))
    return order if known and tensor.numel() else None


def smaller(sizes: Iterable[int], least: int) -> dict[int, int] | None:
    """Small extents for large ones, from ``least`` on; None where there are none up to a hundred that keep what is said above."""
    found: dict[int, int] = {}
    last = least
    for size in sorted({size for size in sizes if size > KEPT}):
        fits = (each for each in range(last + 1, _LONGEST) if _alike(size, each, found))
        last = next(fits, 0)
        if not last:
            return None
        found[size] = last
    return found


def _alike(size: int, small: int, found: Mapping[int, int]) -> bool:
    """Whether a small extent is divided as a large one is: by small numbers, and by the extents that are known."""
    if any((size % by == 0) != (small % by == 0) for by in _DIVISORS):
        return False
    return all((size % other == 0) == (small % own == 0) for other, own in found.items())


def laid_out(like: torch.Tensor, sizes: Mapping[int, int], number: int) -> torch.Tensor | None:
    """Numbers in smaller sizes that lie as a tensor's do: in the same order of dims, expanded where it is, with gaps where it has them; None where elements overlap otherwise."""
    shape = [sizes.get(size, size) for size in like.shape]
    steps = stride_of(like)
    found, step, real = [0] * len(shape), 1, 1
    for dim in sorted((dim for dim in range(len(shape)) if steps[dim] and like.shape[dim] != 1), key=steps.__getitem__):
        if steps[dim] < real:
            return None
        step *= 2 if steps[dim] > real else 1
        found[dim] = step
        step, real = step * shape[dim], steps[dim] * like.shape[dim]
    extent = 1 + sum((size - 1) * each for size, each in zip(shape, found, strict=True)) if math.prod(shape) else 0
    return torch.full((extent,), number, dtype=torch.float32, device="cpu").as_strided(shape, found)
