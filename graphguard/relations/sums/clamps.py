"""What a maximum can leave out because another number is never less, and numbers that are held between two.

``min(x, y)`` is ``-max(-x, -y)``, and ``max(low, min(x, high))`` is ``min(max(low, x), high)`` where low is at most high; of the two that one stays which nests x least.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from graphguard.relations.facts.signs import never_negative
from graphguard.relations.sums.linear import close, opened
from graphguard.relations.terms.kernels import Kernel, Number, Term, Universe, order
from graphguard.relations.terms.windows import through

_Bounds: TypeAlias = "tuple[Number | None, Number | None]"
#: Functions that lie between two numbers.
_BOUNDED: Final[dict[str, tuple[int, int]]] = {"sigmoid": (0, 1), "tanh": (-1, 1), "erf": (-1, 1)}
_DEPTH: Final = 4  # of maxima within maxima


@dataclass(frozen=True, slots=True)
class Clamp:
    """``max(low, min(inside, high))``; ``inside`` is the least of several terms, or one."""

    low: Number
    inside: list[Term]
    high: Number


def without_lesser(items: list[Term]) -> list[Term]:
    """What a maximum is taken of but for what is never more than another of them."""
    known = [_bounds(item, _DEPTH) for item in items]
    floors = [(low, not is_constant(items[at]), -at) for at, (low, _) in enumerate(known) if low is not None]
    if not floors:
        return items
    floor, _, best = max(floors)
    return [item for at, item in enumerate(items) if at == -best or not _is_at_most(known[at][1], floor)]


def _is_at_most(high: Number | None, floor: Number) -> bool:
    return high is not None and high <= floor


def is_constant(item: Term) -> bool:
    """Whether a term is a known number."""
    return item[1][0].kind == "one"


def _bounds(item: Term, depth: int) -> _Bounds:
    """The least and the most that a term is seen to be."""
    number, (kernel, *_) = item
    low, high = (None if end is None else number * end for end in _bounds_of(kernel, depth))
    return (low, high) if number >= 0 else (high, low)


def _bounds_of(kernel: Kernel, depth: int) -> _Bounds:
    if kernel.kind == "one":
        return 1, 1
    if kernel.kind == "function" and kernel.name in _BOUNDED:
        return _BOUNDED[kernel.name]
    if kernel.kind != "maximum" or not depth:
        return (0 if never_negative(kernel) else None), (1 if kernel.truth and not kernel.reduced else None)
    parts = [_bounds((factor[1], (factor[0], (), (), ())), depth - 1) for factor in kernel.factors]
    lows = [low for low, _ in parts if low is not None]
    highs = [high for _, high in parts if high is not None]
    return max(lows, default=None), max(highs) if len(highs) == len(parts) else None


def maximised(item: Term) -> list[Term]:
    """What a term is the largest of: of any but a positive multiple of a maximum, itself."""
    number, ref = item
    if ref[0].kind != "maximum" or number <= 0:
        return [item]
    out: list[Term] = []
    for factor in ref[0].factors:
        part = through(ref, factor)
        if part is None:
            return [item]
        out.append((number * factor[1], part))
    return out


def clamp_of(items: list[Term]) -> Clamp | None:
    """What a maximum is taken of, as a clamp; None where it is none."""
    if len(items) != 2 or is_constant(items[0]) == is_constant(items[1]):
        return None
    (low, _), (number, ref) = sorted(items, key=is_constant, reverse=True)
    parts = maximised((-number, ref))
    high = [-c for c, part in parts if part[0].kind == "one"]
    inside = [(-c, part) for c, part in parts if part[0].kind != "one"]
    return Clamp(low, inside, high[0]) if len(high) == 1 and inside else None


def stands(universe: Universe, clamp: Clamp, extents: tuple[int, ...]) -> bool:
    """Whether this is the spelling that stays, and not that of the negative."""
    if len(clamp.inside) > 1:
        return True
    (number, ref) = clamp.inside[0]
    if ref[0].kind == "maximum":
        return number < 0
    terms = (opened(ref) if ref[0].kind == "sum" else None) or ((1, ref),)
    (c, one), (_, other) = (
        close(universe, tuple((sign * number * c, part) for c, part in terms), extents) for sign in (1, -1)
    )
    return c > 0 if one == other else order((1, one)) < order((1, other))
