"""The largest of the ranks' largest: what is chosen among choices is chosen from the lines that they were made from.

``topk`` of ``concat(topk(a), topk(b))`` holds the elements of ``topk(concat(a, b))``, and what it selects from their places are its places.  Of equal elements PyTorch does not say which are taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Generic

from graphguard.relations.algebra import Algebra, V
from graphguard.rules.basis.arithmetic import LETTERS, plus

NO_TIES: Final = "the elements of which topk takes the largest or smallest are all different: of equal ones PyTorch does not say which are taken"
MOST_PARTS: Final = 20  # letters for their places
_MOST_NOTED: Final = 64
_CHOICES, _FOUND = "topk", "found"


@dataclass(frozen=True, slots=True)
class Choice(Generic[V]):
    """The largest (or smallest) elements of every line along a dim, and where they stand."""

    line: V
    dim: int
    largest: bool
    values: V
    places: V

    def is_enough(self, count: int) -> bool:
        """Whether so many of the whole are among these, if any of this line are."""
        taken = self.values.shape[self.dim]
        return taken >= min(count, self.line.shape[self.dim])


@dataclass(frozen=True, slots=True)
class Found(Generic[V]):
    """Where, among the joined elements of choices, those of the whole line stand, which are ``values`` and stand at ``places`` there."""

    at: V
    dim: int
    joined: V
    joined_places: V
    values: V
    places: V


def note_choice(a: Algebra[V], choice: Choice[V]) -> None:
    """Remember a choice."""
    noted = a.noted(_CHOICES)
    if len(noted) < _MOST_NOTED:
        noted.append(choice)


def choices_in(a: Algebra[V], v: V, dim: int, largest: bool, count: int) -> list[Choice[V]] | None:
    """The choices whose elements a line joins, in order, so many of each that all that would be chosen of the whole are there; None where it does not."""
    known = [choice for choice in a.noted(_CHOICES) if choice.dim == dim and choice.largest is largest]
    if len(known) < 2:
        return None
    parts: list[Choice[V]] = []
    start, extent = 0, v.shape[dim]
    while start < extent:
        part = _starting_at(a, v, dim, start, known)
        if part is None or not part.is_enough(count):
            return None
        parts.append(part)
        start += part.values.shape[dim]
    return parts if 1 < len(parts) <= MOST_PARTS else None


def _starting_at(a: Algebra[V], v: V, dim: int, start: int, known: Sequence[Choice[V]]) -> Choice[V] | None:
    for choice in known:
        stop = start + choice.values.shape[dim]
        fits = stop <= v.shape[dim] and choice.values.kind == v.kind
        if fits and a.same(a.slice(v, dim, start, stop), choice.values):
            return choice
    return None


def found_among(a: Algebra[V], v: V, dim: int, parts: Sequence[Choice[V]], values: V, places: V) -> V:
    """Where what was chosen of the whole line stands among the joined parts: closed, a function of the places alone."""
    starts = accumulate((part.line.shape[dim] for part in parts[:-1]), initial=0)
    there = [plus(a, part.places, start) for part, start in zip(parts, starts, strict=True)]
    letters = LETTERS[: len(v.shape)]
    lines = [letters[:dim] + core + letters[dim + 1 :] for core in LETTERS.upper()]
    at = a.opaque("found", (), [(places, letters), *zip(there, lines, strict=False)], letters, places.shape, "int")
    a.noted(_FOUND).append(Found(at, dim, v, a.concat(there, dim), values, places))
    return at


def found_again(a: Algebra[V], source: V, dim: int, index: V) -> V | None:
    """What is read of joined elements, or of their places, where the whole line's were found; None of anything else."""
    for found in a.noted(_FOUND):
        if found.dim != dim or not a.same(index, found.at):
            continue
        if a.same(source, found.joined):
            return found.values  # type: ignore[no-any-return]
        if a.same(source, found.joined_places):
            a.assume(NO_TIES)
            return found.places  # type: ignore[no-any-return]
    return None
