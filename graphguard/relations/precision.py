"""In which element types programs have their numbers.

Float types stand for the reals, and a cast to a narrower one is an unknown function of its operand.  Of a number that is one of that type it is the number itself: an
input in bfloat16, sent as float32 and cast back.  So it is for what is computed in bfloat16, which is rounded there: ranks that reduce in float32 and cast the
total to bfloat16 round it once, as a specification in bfloat16 does.  What is kept in float32 is rounded by such a cast, and stays another number.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Final, TypeAlias

from graphguard.relations.kernels import Number, Ref, Terms, Universe
from graphguard.relations.linear import close
from graphguard.relations.values import NormalValue, extents_of

Ranges: TypeAlias = tuple[tuple[int, int], ...]
_Key: TypeAlias = frozenset[tuple[int, Number]]
_ALIKE: Final = 64  # tensors of the same kernels that are looked at


@dataclass(frozen=True, slots=True)
class _Row:
    """A part of a tensor of some type."""

    terms: Terms
    extents: tuple[int, ...]
    specified: bool


class Precision:
    """The tensors that there are, by element type."""

    def __init__(self, universe: Universe) -> None:
        self._universe = universe
        self._new: dict[str, dict[NormalValue, bool]] = defaultdict(dict)
        self._known: dict[str, dict[_Key, list[_Row]]] = defaultdict(dict)

    def add(self, value: NormalValue, dtype: str) -> None:
        """Numbers that are of a type."""
        if value.kind == "float":
            self._new[dtype].setdefault(value, self._universe.specifying)

    def has(self, value: NormalValue, dtype: str) -> bool:
        """Whether all elements are seen to be numbers of a type; False is always a right answer."""
        self._take_in(dtype)
        known = self._known[dtype]
        return bool(known) and all(self._held(known, terms, extents_of(box)) for box, terms in value.pieces if terms)

    def _take_in(self, dtype: str) -> None:
        for value, specified in self._new.pop(dtype, {}).items():
            for box, terms in value.pieces:
                rows = self._known[dtype].setdefault(_key(terms), [])
                if terms and len(rows) < _ALIKE:
                    rows.append(_Row(terms, extents_of(box), specified))

    def _held(self, known: dict[_Key, list[_Row]], terms: Terms, extents: tuple[int, ...]) -> bool:
        universe, specifying = self._universe, self._universe.specifying
        rows = [row for row in known.get(_key(terms), ()) if row.specified or not specifying]
        if not rows:
            return False
        held = []
        for row in rows:
            universe.specifying = row.specified  # a sum of several terms is what parts of it are matched against
            held.append(close(universe, row.terms, row.extents))
        universe.specifying = specifying
        number, ref = close(universe, terms, extents)
        return any(number == other and _within(ref, whole) for other, whole in held)


def _key(terms: Terms) -> _Key:
    return frozenset((ref[0].id, coefficient) for coefficient, ref in terms)


def _within(ref: Ref, whole: Ref) -> bool:
    """Whether one reference reads nothing of a kernel that the other does not read."""
    if ref[0] is not whole[0] or ref[3] != whole[3]:
        return False
    ranges = _read(whole)
    if any(high - low + 1 != count for (low, high), count in zip(ranges, _counts(whole), strict=True)):
        return False
    return all(a <= b and c <= d for (a, d), (b, c) in zip(ranges, _read(ref), strict=True))


def _read(ref: Ref) -> Ranges:
    """The first and the last index that is read along every axis of the kernel."""
    low, high = list(ref[1]), list(ref[1])
    for digits in ref[2]:
        for axis, stride, size in digits:
            if axis >= 0:
                low[axis] += min(0, stride * (size - 1))
                high[axis] += max(0, stride * (size - 1))
    return tuple(zip(low, high, strict=True))


def _counts(ref: Ref) -> list[int]:
    """How many indices the digits along every axis take."""
    sizes: list[list[int]] = [[] for _ in ref[1]]
    for digits in ref[2]:
        for axis, stride, size in digits:
            if axis >= 0 and stride:
                sizes[axis].append(size)
    return [math.prod(each) for each in sizes]
