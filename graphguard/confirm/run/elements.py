"""Element types while numbers run: every float is computed in float64, narrowing casts really round.

Float types stand for the reals, so arithmetic is done in float64 whatever the graph declares.  Where a program casts to a
narrower type, the value is rounded to that type and stays a float64: re-association noise is some 1e-16, so two
programs that cast equal values round to equal values.
"""

from __future__ import annotations

from typing import Final

import torch

from graphguard.ir import TensorType

DTYPES: Final[dict[str, torch.dtype]] = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.bool,
        torch.uint8,
        torch.uint16,
        torch.uint32,
        torch.uint64,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.complex64,
        torch.complex128,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
    )
}
DTYPES["complex32"] = torch.complex64

# Significant bits and exponent bits: one type is narrower than another where it has fewer of either.
_PRECISION: Final = {
    "float64": (53, 11),
    "float32": (24, 8),
    "float16": (11, 5),
    "bfloat16": (8, 8),
    "float8_e4m3fn": (4, 4),
    "float8_e5m2": (3, 5),
}
FLOATS: Final = frozenset(_PRECISION)
NARROW: Final = FLOATS - {"float64", "float32"}


class UnrunnableError(Exception):
    """Something that numbers cannot follow; the message says what and why."""


class UncoveredError(UnrunnableError):
    """Numbers for which the program does not do what was recorded: they are outside of what is assumed."""


def stored(name: str) -> torch.dtype:
    """The type in which elements declared as ``name`` are held; raises ``KeyError`` for a type that numbers do not have."""
    dtype = DTYPES[name]
    if dtype.is_floating_point:
        return torch.float64
    return torch.complex128 if dtype.is_complex else dtype


def narrows(source: str, target: str) -> bool:
    """Whether a cast from ``source`` to ``target`` can lose float precision or range."""
    if source not in _PRECISION or target not in _PRECISION:
        return False
    return any(wide > narrow for wide, narrow in zip(_PRECISION[source], _PRECISION[target], strict=True))


def rounded(value: torch.Tensor, name: str) -> torch.Tensor:
    """The float64 elements rounded to type ``name``, as float64."""
    return value.to(DTYPES[name]).to(torch.float64)


def extents(kind: TensorType) -> tuple[int, ...]:
    """The shape where every size is a number; raises :class:`UnrunnableError` otherwise."""
    sizes = tuple(size for size in kind.shape if isinstance(size, int))
    if len(sizes) != len(kind.shape):
        raise UnrunnableError("a size is only known when the program runs")
    return sizes


def size_of(size: object) -> int:
    """The number of a size; one where only the run tells."""
    return size if isinstance(size, int) else 1
