"""Both programs on numbers with every value kept, and which failing outputs are right once some values of the ranks are others.

Only what is downstream of them runs again (:meth:`~graphguard.repair.numbers.point.Point.intervened`).  Work is counted in calls, not in seconds: the same capture gives the same answer on any machine.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from graphguard.ir import Capture, Placement, Promise, Var
from graphguard.ir.capture import Like
from graphguard.ir.joining import Joined, JoinedCall, join
from graphguard.relations.numbers import Array, Number
from graphguard.repair.numbers.point import Changed, Point
from graphguard.repair.numbers.refuting import Refuter, rebuilt

Place = tuple[int, Var]
"""A rank and one of its tensors."""
Forced = Mapping[Place, Array]
DRAWS: Final = 2
_PLACEMENTS: Final = 256


class OutOfFuelError(Exception):
    """As many calls ran again as were allowed."""


@dataclass(slots=True)
class Run:
    """One draw: the values of both programs; those that could not be worked out are absent."""

    refuter: Refuter
    spec: dict[Var, Array] = field(init=False)
    ranks: list[dict[Var, Array]] = field(init=False)

    def __post_init__(self) -> None:
        self.spec = {var: value.array for var, value in self.refuter.point.spec.items()}
        self._take()

    def _take(self) -> None:
        self.ranks = [{var: value.array for var, value in rank.items()} for rank in self.refuter.point.ranks]

    def become(self, changed: Changed) -> None:
        """Go on from what an intervention made of the ranks."""
        point = self.refuter.point
        point.all(changed)
        self.refuter = Refuter(point.after(changed), self.refuter.laid_out)
        self._take()


@dataclass(slots=True)
class Numbers:
    """A capture of which promises fail; ``fuel`` is how many calls may still run again, ``at`` the step in which a rank's node runs."""

    capture: Capture
    runs: list[Run]
    failing: tuple[Promise, ...]
    fuel: int
    joined: Joined
    at: dict[tuple[int, int], int] = field(default_factory=dict)

    @classmethod
    def of(cls, capture: Capture, broken: Sequence[str], fuel: int) -> Numbers | None:
        """Run both programs; None where that is not worth while, or no promise is seen to fail on all draws."""
        runs = []
        for turn in range(DRAWS):
            point = Point.of(capture, turn)
            if point is None:
                return None
            runs.append(Run(Refuter(point)))
        found = cls(capture, runs, (), fuel, join(capture.ranks))
        for number, step in enumerate(found.joined.order):
            members = step.nodes.items() if isinstance(step, JoinedCall) else (step,)
            found.at.update((place, number) for place in members)
        asked = [promise for promise in capture.promises if promise.name in broken]
        found.failing = tuple(promise for promise in asked if not any(found._kept(run, promise) for run in runs))
        return found if found.failing else None

    def _kept(self, run: Run, promise: Promise) -> bool:
        return self._keeps(run, run.refuter.point.intervened({}), promise, loose=True)

    def mended(self, forced: Sequence[Forced], left: Sequence[Promise], loose: bool) -> frozenset[str]:
        """The failing outputs that other values, one mapping a draw, put right on every draw; raises :class:`OutOfFuelError`.

        ``loose``: where any clean relation would do, elements may lie anywhere or add up.
        """
        good = list(left)
        for run, values in zip(self.runs, forced, strict=True):
            if not values:
                continue  # right on this draw already
            changed = run.refuter.point.intervened({place: Number(value) for place, value in values.items()})
            ranks = self.capture.ranks
            asked = {p.name: [r for r, graph in enumerate(ranks) if p.name in graph.outputs] for p in good}
            right = set()
            for name in run.refuter.point.towards(changed, asked):
                promise = next(each for each in good if each.name == name)
                if changed.fits and self._keeps(run, changed, promise, loose):
                    right.add(name)
            self.fuel -= 1 + len(changed.done)
            if self.fuel < 0:
                raise OutOfFuelError
            good = [promise for promise in good if promise.name in right]
            if not good or not changed.fits:
                return frozenset()
        return frozenset(promise.name for promise in good)

    def become(self, forced: Sequence[Forced]) -> None:
        """Go on from an intervention: what is searched next is another defect."""
        for run, values in zip(self.runs, forced, strict=True):
            point = run.refuter.point
            run.become(point.intervened({place: Number(value) for place, value in values.items()}))

    def _keeps(self, run: Run, changed: Changed, promise: Promise, loose: bool) -> bool:
        """Whether an output is known to be as promised."""
        held: dict[int, Number] = {}
        for rank, graph in enumerate(self.capture.ranks):
            if promise.name in graph.outputs:
                value = changed.value(rank, graph.outputs[promise.name])
                if value is None:
                    return False
                held[rank] = value
        spec = self.capture.spec
        assert spec is not None
        if isinstance(promise.wanted, Like):
            return bool(held) and run.refuter.is_like(promise, changed, held)
        target = run.spec.get(spec.outputs.get(promise.name, Var(-1)))
        if target is None or not held:
            return False
        if isinstance(promise.wanted, dict):
            return self._placed(run, promise.wanted, held, target)
        if any(self._placed(run, wanted, held, target) for wanted in self._placements(target, held, loose)):
            return True
        return loose and not run.refuter.refutes(promise, changed)

    def _placements(self, target: Array, held: Mapping[int, Number], loose: bool) -> Iterator[dict[str, Placement]]:
        kinds: list[list[Placement]] = [
            [
                Placement("replicate"),
                *(Placement("shard", dim) for dim in range(target.ndim)),
                *([Placement("partial")] if loose else []),
            ]
            for size in self.capture.mesh.values()
            if size
        ]
        if math.prod(map(len, kinds)) <= _PLACEMENTS and len(held) == self.capture.world_size:
            for row in itertools.product(*kinds):
                yield dict(zip(self.capture.mesh, row, strict=True))

    def _placed(self, run: Run, wanted: dict[str, Placement], held: Mapping[int, Number], target: Array) -> bool:
        copies = rebuilt(self.capture, wanted, held, run.refuter.point)
        return copies is not None and all(same(target, copy) for copy in copies)


def same(one: Array, other: Array) -> bool:
    """Whether two arrays are equal but for rounding."""
    if one.shape != other.shape or (one.dtype.kind == "f") != (other.dtype.kind == "f"):
        return False
    if one.dtype.kind != "f":
        return bool((one == other).all())
    with np.errstate(invalid="ignore"):
        finite = np.isfinite(one)
        largest = np.abs(one[finite]).max(initial=0.0)
        near = np.abs(one - other) <= 1e-9 * largest + 1e-14
        return bool((near | (one == other) | (np.isnan(one) & np.isnan(other))).all())
