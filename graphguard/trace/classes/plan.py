"""Which ranks are recorded: those that tell what all others run.

A rank that is sounded says which ranks are like it: these are a *class*.  Of every class a cross of coordinates is recorded, one rank far off its axes, and some that are drawn, which must be as the
others foretell.  Where anything does not fit, all of the class is recorded.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from graphguard.ir.graph import Graph
from graphguard.trace.classes.numbers import Values
from graphguard.trace.classes.predictions import Class, Mapped, form_of
from graphguard.trace.classes.templates import Template, UnlikeError
from graphguard.trace.graph.meetings import Stop

CHECKS: Final = 2
"""Ranks of a class that are recorded to see whether they were foretold."""
# So many ranks are recorded rather than sounded.
_FEW: Final = 4
# Recording is not worth more than that part of the ranks.
_MOST: Final = 0.75

R = TypeVar("R")
Foretold = dict[int, tuple[int, Graph, tuple[Stop, ...]]]
"""For every rank that was not recorded: one of its class that was, its graph and its stops."""


@dataclass(frozen=True, slots=True)
class Sounded:
    """What sounding a rank gave: the ranks like it, the numbers that became literals, where ranks were told apart, and where nobody could follow a number."""

    alike: tuple[int, ...]
    literals: tuple[Values, ...] = ()
    split: dict[tuple[str, int], int] = field(default_factory=dict)
    unfollowed: dict[tuple[str, int], int] = field(default_factory=dict)


@dataclass(slots=True)
class Plan(Generic[R]):
    """Records ranks of a mesh until the others are known.

    ``run(ranks, sound)`` records ranks, and sounds some of them; ``template`` takes a recorded one apart (None: it is none that others follow).
    """

    mesh: Mapped
    seed: str
    run: Callable[[list[int], list[int]], tuple[dict[int, R], dict[int, tuple[Sounded, Template | None]]]]
    template: Callable[[R], Template | None]
    recorded: dict[int, R] = field(default_factory=dict)
    templates: dict[int, Template] = field(default_factory=dict)
    sounded: dict[int, Sounded] = field(default_factory=dict)

    def carried_out(self) -> Foretold | None:
        """The ranks that are known without being recorded; None where all are to be recorded."""
        everyone = tuple(range(self.mesh.count))
        drawn = self._drawn(everyone)
        if not self._record([*chosen(everyone, self.mesh), *drawn], [0, *drawn[-1:]]):
            return None
        while left := self._left(everyone):
            if len(left) <= _FEW:
                if not self._record(left, []):
                    return None
                break
            if self._is_too_much(left):
                return None
            more = self._unclassed() or left  # those that are recorded already tell as much
            more = more[:1] if len(left) < 2 * _FEW else [more[0], more[-1]]
            if not self._record(more, more):
                return None
        return self._foretold(everyone)

    def _drawn(self, ranks: Sequence[int]) -> list[int]:
        """Ranks of these that nobody could have meant."""
        others = sorted(set(ranks).difference(chosen(ranks, self.mesh)))
        return random.Random(f"{self.seed} {ranks[0]} {len(ranks)}").sample(others, min(CHECKS, len(others)))  # noqa: S311 - as good as any

    def _record(self, ranks: Iterable[int], sound: Iterable[int]) -> bool:
        """Record ranks that are not yet; False where one is none that others follow."""
        new = sorted({rank for rank in ranks if rank not in self.recorded})
        asked = sorted({rank for rank in sound if rank not in self.sounded})
        recorded, sounded = self.run(new, asked)
        self.recorded.update(recorded)
        for rank, one in recorded.items():
            template = self.template(one)
            if template is None:
                return False
            self.templates[rank] = template
        for rank, (found, template) in sounded.items():
            own = self.templates[rank]
            followed = template is not None and template.skeleton == own.skeleton and template.holes == own.holes
            self.sounded[rank] = found if followed else Sounded((rank,), (), found.split, found.unfollowed)
        return self._is_divided()

    def _is_divided(self) -> bool:
        """Whether classes have no rank in common: ranks that are like another are like each other."""
        seen: dict[int, tuple[int, ...]] = {}
        for one in self.sounded.values():
            for rank in one.alike:
                if seen.setdefault(rank, one.alike) != one.alike:
                    return False
        return True

    def _left(self, everyone: Sequence[int]) -> list[int]:
        known = {rank for one in self.sounded.values() for rank in one.alike} | self.recorded.keys()
        return [rank for rank in everyone if rank not in known]

    def _unclassed(self) -> list[int]:
        """Ranks that were recorded and are in no class yet."""
        classed = {rank for one in self.sounded.values() for rank in one.alike}
        return sorted(self.recorded.keys() - classed)

    def _is_too_much(self, left: Sequence[int]) -> bool:
        """Whether as much as is to be recorded still is hardly less than everything; a few soundings tell how large classes are."""
        classes = {one.alike for one in self.sounded.values()}
        usual = sum(map(len, classes)) / len(classes) if len(self.sounded) >= _FEW else len(left)
        each = min(usual, len(chosen(range(self.mesh.count), self.mesh)) + CHECKS)
        expected = len(self.recorded) + len(left) / usual * (each + 1)
        return expected > _MOST * self.mesh.count

    def _foretold(self, everyone: Sequence[int]) -> Foretold | None:
        found: Foretold = {}
        for ranks, sounded in sorted({one.alike: one for one in self.sounded.values()}.items()):
            missing = [rank for rank in ranks if rank not in self.recorded]
            if not missing or self._of_class(ranks, sounded, found):
                continue
            if len(self.recorded) + len(missing) > _MOST * len(everyone) or not self._record(missing, []):
                return None
        return found

    def _of_class(self, ranks: tuple[int, ...], sounded: Sounded, found: Foretold) -> bool:
        """Foretell the ranks of a class; False where that cannot be done."""
        drawn = self._drawn(ranks)
        if not self._record([*chosen(ranks, self.mesh), *drawn], []):
            return False
        known = [rank for rank in ranks if rank in self.templates]
        seen = [rank for rank in known if rank not in drawn[-1:]]
        try:
            program = Class({rank: self.templates[rank] for rank in seen}, self.mesh)
            if not all(program.foretells(rank, self.templates[rank]) for rank in known):
                return False
            if not fit(sounded.literals, ranks, seen, self.mesh):
                return False
            graphs = {rank: (seen[0], *program.graph(rank)) for rank in ranks if rank not in self.recorded}
        except UnlikeError:
            return False
        found.update(graphs)
        return True


def chosen(ranks: Sequence[int], mesh: Mapped) -> list[int]:
    """Of ranks: the first, along every axis from it the next and the last, and the last of all."""
    places = {mesh.place(rank): rank for rank in ranks}
    first = min(places)
    found = {ranks[0], ranks[-1]}
    for axis in range(len(mesh.sizes)):
        line = sorted(place for place in places if place[:axis] + place[axis + 1 :] == first[:axis] + first[axis + 1 :])
        found.update(places[place] for place in (*line[:2], line[-1]))
    return sorted(found)


def fit(literals: Iterable[Values], ranks: Sequence[int], seen: Sequence[int], mesh: Mapped) -> bool:
    """Whether all of these numbers are on every rank what the ranks that were seen say of them; raises ``UnlikeError``."""
    rows = dict.fromkeys(tuple(values[rank] for rank in ranks) for values in literals)
    for row in rows:
        numbers: Mapping[int, int | float] = dict(zip(ranks, row, strict=True))
        if len(set(row)) == 1:
            continue
        form = form_of({rank: numbers[rank] for rank in seen}, mesh)
        if any(form(mesh.place(rank)) != numbers[rank] for rank in ranks):
            return False
    return True
