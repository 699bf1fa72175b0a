"""Where the largest of a divided line stands, of which every rank says where the largest of its part stands if that is the largest of all, and another number if not.

``min over parts of (place + start if max of part = max of all, else beyond)`` is the first place at which the largest stands, also where several parts have it.  By the largest of such numbers, or their sum, it would be another place
where several have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic

import numpy as np

from graphguard.relations.algebra import Algebra, V
from graphguard.rules.basis import arithmetic
from graphguard.rules.basis.arithmetic import compared, expanded, full, is_number, larger, minus, negative

_MOST_NOTED: Final = 64
_LARGEST, _CHOSEN, _PLACES = "largest", "chosen", "places"


@dataclass(frozen=True, slots=True)
class Largest(Generic[V]):
    """The largest element of every line along a dim, and where it stands; both may keep the dim."""

    line: V
    dim: int
    value: V
    place: V


@dataclass(frozen=True, slots=True)
class Chosen(Generic[V]):
    """Whole numbers: ``one`` where the condition holds, else ``other``."""

    result: V
    condition: V
    one: V
    other: V


@dataclass(frozen=True, slots=True)
class Part(Generic[V]):
    """One rank's part of the line: where it starts, its largest, and what the rank says if that is not the largest of all."""

    largest: Largest[V]
    start: int
    condition: V
    negated: bool
    otherwise: int

    @property
    def stop(self) -> int:
        """Where the next part starts."""
        return self.start + self.largest.line.shape[self.largest.dim]


def note_largest(a: Algebra[V], line: V, dim: int, value: V, place: V) -> None:
    """Remember where the largest stands."""
    _note(a, _LARGEST, Largest(line, dim, value, place))


def note_place(a: Algebra[V], place: V) -> None:
    """Remember where the largest, or the smallest, of some lines stands."""
    _note(a, _PLACES, place)


def largest_at(a: Algebra[V], v: V, dim: int, place: V) -> V | None:
    """The elements of the lines along a dim at places, which lack that dim, if these are where the largest of each stands, or the smallest; None of any other places."""
    if not any(known.shape == place.shape and a.same(known, place) for known in a.noted(_PLACES)):
        return None
    if a.same(a.place_of_largest(v, dim), place):
        return a.max_over(v, [dim])
    opposite: V = negative(a, v)
    return negative(a, a.max_over(opposite, [dim])) if a.same(a.place_of_largest(opposite, dim), place) else None


def chosen(a: Algebra[V], condition: V, one: Any, other: Any) -> V:
    """``one`` where the condition holds, else ``other``; remembered where there are places of largest elements to choose."""
    result: V = arithmetic.chosen(a, condition, one, other)
    if result.kind == "int" and a.noted(_LARGEST):
        x, y = (full(a, result.shape, v, "int") if is_number(v) else expanded(a, v, result.shape) for v in (one, other))
        _note(a, _CHOSEN, Chosen(result, condition, x, y))
    return result


def _note(a: Algebra[V], topic: str, what: Any) -> None:
    noted = a.noted(topic)
    if len(noted) < _MOST_NOTED:
        noted.append(what)


def place_in_all(a: Algebra[V], reduce: str, values: Sequence[V]) -> V | None:
    """Where the largest of the whole line stands, where the ranks' numbers are such; None of any others."""
    if reduce != "min" or len(values) < 2 or not a.noted(_CHOSEN):
        return None
    found = [_part_of(a, value) for value in values]
    parts = sorted((part for part in found if part is not None), key=lambda part: part.start)
    if len(parts) < len(values) or not _are_adjacent(parts) or not _say_nothing(parts):
        return None
    try:
        whole: V = a.concat([part.largest.line for part in parts], parts[0].largest.dim)
    except ValueError:
        return None
    if not all(_holds_the_largest(a, part, parts) for part in parts):
        return None
    return a.reshape(a.place_of_largest(whole, parts[0].largest.dim), values[0].shape)


def _part_of(a: Algebra[V], value: V) -> Part[V] | None:
    for chosen in a.noted(_CHOSEN):
        if chosen.result.shape != value.shape or not a.same(chosen.result, value):
            continue
        for one, other, negated in ((chosen.one, chosen.other, False), (chosen.other, chosen.one, True)):
            otherwise = _constant(a, other)
            if otherwise is None:
                continue
            for largest in a.noted(_LARGEST):
                start = _start(a, one, largest)
                if start is not None:
                    return Part(largest, start, chosen.condition, negated, otherwise)
    return None


def _constant(a: Algebra[V], v: V) -> int | None:
    """The one number that all elements are."""
    known = a.known(v)
    if known is None or not known.size or not np.all(known == known.flat[0]):
        return None
    return int(known.flat[0])


def _start(a: Algebra[V], v: V, largest: Largest[V]) -> int | None:
    """How far places in the whole are from places in the part."""
    if _thin(v.shape) != _thin(largest.place.shape):
        return None
    return _constant(a, minus(a, v, a.reshape(largest.place, v.shape)))


def _thin(shape: tuple[int, ...]) -> list[int]:
    return [extent for extent in shape if extent != 1]


def _are_adjacent(parts: Sequence[Part[V]]) -> bool:
    """Whether the parts lie side by side from the start of a line, along one dim."""
    first = parts[0].largest
    rest = [(*part.largest.line.shape[: first.dim], *part.largest.line.shape[first.dim + 1 :]) for part in parts]
    alike = all(part.largest.dim == first.dim for part in parts) and rest.count(rest[0]) == len(rest)
    ends = [0, *(part.stop for part in parts)]
    return alike and all(part.start == end for part, end in zip(parts, ends, strict=False))


def _say_nothing(parts: Sequence[Part[V]]) -> bool:
    """Whether what ranks without the largest say does not count, because another has it."""
    return min(part.otherwise for part in parts) >= parts[-1].stop - 1


def _holds_the_largest(a: Algebra[V], part: Part[V], parts: Sequence[Part[V]]) -> bool:
    """Whether a part's condition is that its largest is the largest of all."""
    shape = part.largest.value.shape
    top = parts[0].largest.value
    for other in parts[1:]:
        top = larger(a, top, other.largest.value)
    if _thin(part.condition.shape) != _thin(shape):
        return False
    condition: V = a.reshape(part.condition, shape)
    relations = ("ne", "lt") if part.negated else ("eq", "ge")
    return any(a.same(condition, compared(a, relation, part.largest.value, top)) for relation in relations)
