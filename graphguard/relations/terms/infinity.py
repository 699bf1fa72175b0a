"""Minus infinity, which masks are made of."""

from __future__ import annotations

from typing import Final

from graphguard.relations.terms.kernels import Kernel, Ref, Terms, Universe
from graphguard.relations.terms.windows import repeat

INFINITY: Final = "-inf"


def infinity(universe: Universe) -> Kernel:
    """Minus infinity, which only masks may multiply."""
    return universe.intern(("infinity",), "infinity", INFINITY, (), ())


def minus_infinity(universe: Universe, extents: tuple[int, ...]) -> Terms:
    """Minus infinity everywhere."""
    return ((1, (infinity(universe), (), tuple(map(repeat, extents)), ())),)


def is_infinite(ref: Ref) -> bool:
    """Whether a reference has minus infinity as a factor."""
    return ref[0].infinite
