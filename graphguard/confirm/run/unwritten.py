"""Memory that nobody wrote: numbers of its own for every element, and which memory it is that reaches what the ranks hand out."""

from __future__ import annotations

from typing import Final

import torch

from graphguard.confirm.run.elements import DTYPES, UnrunnableError, stored
from graphguard.confirm.run.randomness import generator_of
from graphguard.ops import aten

EMPTY: Final = aten.empty.memory_format
_LEAST: Final = 64  # no run draws such numbers as a rule, and no small table has such an index
_MOST: Final = 127


def unwritten(shape: tuple[int, ...], declared: str, place: tuple[object, ...]) -> torch.Tensor:
    """What lies in memory of a place in a program, the same whenever it is asked for: all elements differ, but for those of types that have too few numbers."""
    if declared not in DTYPES:
        raise UnrunnableError(f"element type '{declared}' has no numbers here")
    dtype, generator = stored(declared), generator_of("unwritten", *place)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    if dtype.is_floating_point or dtype.is_complex:
        return (_LEAST + (_MOST - _LEAST) * torch.rand(shape, generator=generator, dtype=torch.float64)).to(dtype)
    if declared in ("int8", "uint8"):
        return torch.randint(_LEAST, _MOST, shape, generator=generator).to(dtype)
    value = torch.empty(shape, dtype=dtype)
    return _LEAST + torch.randperm(value.numel(), generator=generator).reshape(shape).to(dtype)
