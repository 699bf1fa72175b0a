"""In which element types programs have their numbers.

Float types stand for the reals, and a cast to a narrower one is an unknown function of its operand.  Of a number that is one of that type it is the number itself: an
input in bfloat16, sent as float32 and cast back.  So it is for what is computed in bfloat16, which is rounded there: ranks that reduce in float32 and cast the
total to bfloat16 round it once, as a specification in bfloat16 does.  What is kept in float32 is rounded by such a cast, and stays another number.

So is what a rank computes in bfloat16 where the specification has these numbers, or sums that they are parts of, in float32 alone (``only_wider``).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeAlias

from graphguard.relations.sums.linear import close
from graphguard.relations.terms.kernels import Number, Ref, Terms, Universe, Window
from graphguard.relations.terms.values import NormalValue, extents_of

Ranges: TypeAlias = tuple[tuple[int, int], ...]
_Key: TypeAlias = frozenset[tuple[int, Number]]
_Multiple: TypeAlias = tuple[tuple[int, Number], ...]
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
        self._specified: dict[str, set[_Multiple]] = defaultdict(set)
        self._kept: dict[str, set[_Key]] = defaultdict(set)  # those of the specification
        self._unread: dict[str, list[Terms]] = defaultdict(list)

    def add(self, value: NormalValue, dtype: str) -> None:
        """Numbers that are of a type."""
        if value.kind == "float":
            self._new[dtype].setdefault(value, self._universe.specifying)

    def has(self, value: NormalValue, dtype: str) -> bool:
        """Whether all elements are seen to be numbers of a type; False is always a right answer."""
        self._take_in(dtype)
        known = self._known[dtype]
        return bool(known) and all(self._held(known, terms, extents_of(box)) for box, terms in value.pieces if terms)

    def only_wider(self, value: NormalValue, wider: Sequence[str], others: Sequence[str]) -> str | None:
        """The first of the ``wider`` types in which the specification has all these numbers, or sums that they are parts of; None where it has a multiple or a part of one in
        any of the ``others``, or some in no type at all.
        """
        keys = [_key(terms) for _, terms in value.pieces if terms]
        wide = [
            dtype for dtype in wider if keys and self._knows(dtype, keys)
        ]  # of most values none, which costs little
        if not wide:
            return None
        multiples = {_multiple(terms) for _, terms in value.pieces if terms}
        if any(not self._multiples(dtype).isdisjoint(multiples) for dtype in others):
            return None
        return next((dtype for dtype in wide if self.specifies(value, dtype, summed=True)), None)

    def has_digits(self, value: NormalValue, dtypes: Iterable[str]) -> bool:
        """Whether the specification has multiples of all these numbers, or sums that they are parts of, each in one of some types."""
        types = [dtype for dtype in dtypes if dtype in self._new or dtype in self._known]
        for dtype in types:
            self._take_in(dtype)
        others = {_multiple(terms) for _, terms in value.pieces if terms and not self._is_kept(types, _key(terms))}
        return not others or not others.difference(*map(self._multiples, types))

    def _is_kept(self, types: Sequence[str], key: _Key) -> bool:
        return any(key in self._kept[dtype] for dtype in types)

    def _knows(self, dtype: str, keys: Sequence[_Key]) -> bool:
        self._take_in(dtype)
        known = self._known[dtype]
        return bool(known) and all(key in known for key in keys)

    def _multiples(self, dtype: str) -> set[_Multiple]:
        """What the specification has in a type, but for signs and powers of two."""
        self._take_in(dtype)
        self._specified[dtype].update(map(_multiple, self._unread.pop(dtype, ())))
        return self._specified[dtype]

    def specifies(self, value: NormalValue, dtype: str, summed: bool = False) -> bool:
        """Whether the specification is seen to have all elements in a type; where ``summed``, or sums of which they have some of the summands."""
        self._take_in(dtype)
        return all(self._specifies(dtype, terms, extents_of(box), summed) for box, terms in value.pieces if terms)

    def _specifies(self, dtype: str, terms: Terms, extents: tuple[int, ...], summed: bool) -> bool:
        rows = [row for row in self._known[dtype].get(_key(terms), ()) if row.specified]
        if not rows:
            return False
        universe, specifying = self._universe, self._universe.specifying
        number, ref = close(universe, terms, extents)
        universe.specifying = True
        wholes = [close(universe, row.terms, row.extents) for row in rows]
        universe.specifying = specifying
        return any(number == other and _within(ref, whole, summed) for other, whole in wholes)

    def _take_in(self, dtype: str) -> None:
        for value, specified in self._new.pop(dtype, {}).items():
            for box, terms in value.pieces:
                key = _key(terms)
                rows = self._known[dtype].setdefault(key, [])
                if terms and specified:
                    self._kept[dtype].add(key)
                    self._unread[dtype].append(terms)
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


def same_digits(a: NormalValue, b: NormalValue) -> bool:
    """Whether two values have the same kernels everywhere, summed over the same indices, but for signs and powers of two."""
    return _shapes(a) == _shapes(b)


def _shapes(value: NormalValue) -> set[tuple[_Multiple, tuple[Window, ...]]]:
    return {(_multiple(terms), tuple(sorted(ref[3] for _, ref in terms))) for _, terms in value.pieces if terms}


def _multiple(terms: Terms) -> _Multiple:
    """The kernels and their coefficients, as often as they occur, but for a sign and a power of two, by which binary floats are multiplied exactly."""
    first = min(terms, key=lambda term: (term[1][0].id, term[0]))[0]
    scale = Fraction(_power_of_two(first.numerator), _power_of_two(first.denominator)) * (1 if first > 0 else -1)
    return tuple(sorted((ref[0].id, coefficient / scale) for coefficient, ref in terms))


def _power_of_two(number: int) -> int:
    """The largest power of two that divides a number other than 0."""
    return number & -number


def _within(ref: Ref, whole: Ref, summed: bool = False) -> bool:
    """Whether one reference reads nothing of a kernel that the other does not read; where ``summed`` it may also be a part of the other's sums."""
    if ref[0] is not whole[0] or (ref[3] != whole[3] and not (summed and _covers(whole[3], ref[3]))):
        return False
    ranges = _read(whole)
    if any(high - low + 1 != count for (low, high), count in zip(ranges, _counts(whole), strict=True)):
        return False
    return all(a <= b and c <= d for (a, d), (b, c) in zip(ranges, _read(ref), strict=True))


def _covers(whole: Window, part: Window) -> bool:
    return all(low <= start and stop <= high for (low, high), (start, stop) in zip(whole, part, strict=True))


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
