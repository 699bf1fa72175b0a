"""One draw of inputs through the specification and all ranks, and which promises it refutes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import torch

from graphguard.confirm.promises import Comparison, Slack, comparisons, copied_axes, held_values, promised
from graphguard.confirm.run.draws import GENERIC, Draw, Ranges, leaf_values
from graphguard.confirm.run.elements import NARROW, UncoveredError, UnrunnableError
from graphguard.confirm.run.precision import Held, cast_types
from graphguard.confirm.run.preludes import Preludes
from graphguard.confirm.run.ranges import index_ranges
from graphguard.confirm.run.replay import Arithmetic, Ties, Values, run_graph, run_ranks
from graphguard.confirm.run.rounded_numbers import rounded_numbers
from graphguard.confirm.run.ties import resting_on
from graphguard.confirm.run.work import work_of, work_of_drawing
from graphguard.confirm.strange_draws import redrawn
from graphguard.ir import Capture, Graph, Node, Promise, Var
from graphguard.ir.fuel import SECOND, Fuel, burn
from graphguard.ir.joining import Joined, join
from graphguard.ir.written import float32_is_widest

_EXPLAINING: Final = 2 * SECOND
CHOICES: Final = 12  # runs in which calls choose among equal numbers
FEW_CHOICES: Final = 4  # of programs of which many are tried: one that is right is passed over once in 16 times at most
_ROUNDINGS: Final = (
    4  # where casts round: of numbers on both sides of a boundary one run moves none in a quarter of all cases
)


Tied = tuple[list[Node], list[Node]]  # calls of the specification, and of the ranks, that chose among equal numbers


class OutOfFuelError(UnrunnableError):
    """There is no fuel for another run."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A promise that a draw refutes, compared as it was promised (or as replicated, where anything would do)."""

    promise: Promise
    comparisons: list[Comparison]
    slack: Slack
    draw: Draw


@dataclass(slots=True)
class Trial:
    """A capture being run: its promises, its fuel, and how many draws were made.  ``soft``: casts to narrower types round nothing.  ``reduced``: at reduced extents, where
    a look-up outside of its table may be one of the extents."""

    capture: Capture
    promises: tuple[Promise, ...]
    fuel: Fuel
    draws: int = 0
    ranges: Ranges = field(default_factory=dict)
    sharp: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()
    single: bool = False
    numbers: frozenset[float] = frozenset()
    joined: Joined = field(init=False)
    work: tuple[int, int] = field(init=False)  # steps of a run of the specification, with its draws, and of all ranks
    preludes: Preludes = field(init=False)
    defined: set[str] = field(default_factory=set)
    copied: dict[str, frozenset[str]] = field(default_factory=dict)
    generic: dict[int, tuple[Values, list[Values]] | None] = field(default_factory=dict)
    redrawn: tuple[Graph, ...] | None = field(init=False)
    excused: dict[str, None] = field(default_factory=dict)
    casts: frozenset[str] = frozenset()
    settled: dict[int, bool] = field(default_factory=dict)
    soft: bool = False
    choices: int = CHOICES
    reduced: bool = False

    def to_explain(self) -> Fuel:
        """The fuel of a few more runs that say why programs differ: without them a difference is told as what it is not."""
        return Fuel("saying why numbers differ", max(self.fuel.left, _EXPLAINING))

    def ranks(
        self,
        leaves: Mapping[str, torch.Tensor],
        how: Arithmetic,
        *,
        graphs: tuple[Graph, ...] = (),
        keep: Sequence[Iterable[Var]] = (),
        fuel: Fuel | None = None,
    ) -> list[Values]:
        """A run of all ranks, or of other ``graphs`` that take as long; raises :class:`OutOfFuelError` where there is no fuel for it, and what running raises."""
        _begin(fuel or self.fuel, self.work[1])
        return run_ranks(self.joined, graphs or self.capture.ranks, leaves, how=how, keep=keep)

    def __post_init__(self) -> None:
        self.redrawn = redrawn(self.capture)
        self.joined = join(self.capture.ranks)
        self.work = work_of(self.capture.graphs[:1]) + work_of_drawing(self.capture), work_of(self.capture.ranks)
        self.preludes = Preludes(self.capture)
        self.ranges = index_ranges(self.capture)
        self.sharp = foreign_types(self.capture)
        self.own = own_literals(self.capture)
        self.single = float32_is_widest({kind.dtype for graph in self.capture.graphs for kind in graph.types.values()})
        self.numbers = rounded_numbers(self.capture)
        self.casts = cast_types(self.capture) - self.sharp

    def run(self, draw: Draw) -> list[Failure]:
        """Run one draw; the promises that it refutes."""
        leaves = leaf_values(self.capture, draw, self.ranges)
        expected, found = self._both(leaves)
        strict = draw.style != "wide" and (draw.scale < 1 or draw.style != "normal")
        doubtful: dict[str, list[list[Comparison]]] = {}
        for promise in self.promises:
            alternatives = self.alternatives(promise, expected, found)
            if any(_has_numbers(comparison.expected) for comparison in alternatives[0]):
                self.defined.add(promise.name)
            if _refuted(alternatives, Slack(0.0, strict)):
                doubtful[promise.name] = alternatives
        if not doubtful:
            self.draws += 1
            return []
        slacks = {
            name: Slack(noise, strict)
            for name, noise in self._measured(draw, leaves, expected, found, doubtful).items()
        }
        for name in self._moved_by_strange_draws(doubtful, slacks, leaves, found):
            self.excused[name] = None
            del doubtful[name]
        self.draws += 1  # one that is not decided for want of time says nothing
        return [
            Failure(promise, _closest(doubtful[promise.name], slacks[promise.name]), slacks[promise.name], draw)
            for promise in self.promises
            if promise.name in doubtful and _refuted(doubtful[promise.name], slacks[promise.name])
        ]

    def _measured(
        self,
        draw: Draw,
        leaves: dict[str, torch.Tensor],
        expected: Values,
        found: Sequence[Values],
        doubtful: dict[str, list[list[Comparison]]],
    ) -> dict[str, float]:
        """How far every doubtful promise moves by rounding; what moves because calls choose among equal numbers counts as equal in ``doubtful``.

        Where the specification chooses among no equal numbers, its value is determined, and ranks that choose have another one, whichever they take.  On mild
        inputs only: of large ones a sigmoid makes equal numbers.
        """
        assert self.capture.spec is not None
        mild = draw.style == "normal" and draw.scale < 1 and draw.special is None
        open_, noise = frozenset(doubtful), dict[str, float]()
        if mild:
            noise, _, tied = self._noise(draw, leaves, expected, found, "own")
            open_ = resting_on(self.capture.spec, tied[0]) & open_
            if tied[1]:
                self._keep_refuted(leaves, expected, doubtful, open_)
        if open_:
            other, runs, tied = self._noise(draw, leaves, expected, found, "random")
            noise |= {name: other[name] for name in open_}
            for promise in self.promises if any(tied) else ():
                if promise.name in open_ and promise.wanted != "infer":
                    doubtful[promise.name] = self._but_for_choices(promise, doubtful[promise.name], runs)
                    noise[promise.name] = 0.0
        return {name: noise[name] for name in doubtful}

    def _keep_refuted(
        self,
        leaves: dict[str, torch.Tensor],
        expected: Values,
        doubtful: dict[str, list[list[Comparison]]],
        but: frozenset[str],
    ) -> None:
        """Leave only what is refuted as well where ranks take the other of two equal numbers."""
        how = Arithmetic(self.sharp, held=self._held(asks=False), single=self.single, ties="reversed")
        found = self.ranks(leaves, how)
        for promise in self.promises:
            determined = promise.name in doubtful and promise.name not in but
            if determined and not _refuted(self.alternatives(promise, expected, found), Slack(0.0, strict=True)):
                del doubtful[promise.name]

    def _but_for_choices(
        self, promise: Promise, alternatives: list[list[Comparison]], runs: Sequence[tuple[Values, list[Values]]]
    ) -> list[list[Comparison]]:
        """The comparisons in which every element that moves, in either program, with what is taken of equal numbers counts as equal."""
        assert self.capture.spec is not None
        again = [comparisons(self.capture, promise, *values, self.preludes, ()) for values in runs]
        return [
            [_but_for_moving(one, [other[i][j] for other in again]) for j, one in enumerate(option)]
            for i, option in enumerate(alternatives)
        ]

    def _moved_by_strange_draws(
        self,
        doubtful: dict[str, list[list[Comparison]]],
        slacks: dict[str, Slack],
        leaves: dict[str, torch.Tensor],
        found: Sequence[Values],
    ) -> list[str]:
        """Promises whose values move with draws that the specification has no like of, and whose copies agree among themselves."""
        if self.redrawn is None:
            return []
        how = Arithmetic(self.sharp, held=self._held(asks=False), single=self.single)
        again = self.ranks(leaves, how, graphs=self.redrawn)
        moved = []
        for name, alternatives in doubtful.items():
            before, after = (held_values(self.capture, name, values) for values in (found, again))
            rests = any(_apart(before[rank], after[rank], slacks[name]) for rank in before)
            if rests and any(_agree(option, slacks[name]) for option in alternatives):
                moved.append(name)
        return moved

    def alternatives(self, promise: Promise, expected: Values, found: Sequence[Values]) -> list[list[Comparison]]:
        """The ways to keep a promise; where any would do, other orders of the elements come in only if no placement holds, and sums over ranks last."""
        assert self.capture.spec is not None
        for rearranged in (False, True):
            alternatives = comparisons(self.capture, promise, expected, found, self.preludes, (), rearranged=rearranged)
            if promise.wanted != "infer" or not _refuted(alternatives, Slack(0.0, strict=True)):
                return alternatives
        if promise.name not in self.copied:
            self.copied[promise.name] = self._copied(promise.name)
        summed = [axis for axis in self.capture.mesh if axis not in self.copied[promise.name]]
        return comparisons(self.capture, promise, expected, found, self.preludes, summed)

    def _copied(self, name: str) -> frozenset[str]:
        """The axes along which an output that depends on the inputs is the same on all ranks, whatever the inputs."""
        assert self.capture.spec is not None
        axes = frozenset(self.capture.mesh)
        seen: list[torch.Tensor] = []
        for place in range(len(GENERIC)):
            try:
                run = self._generic(place)
            except OutOfFuelError:
                return frozenset()
            if run is None:
                continue
            expected, found = run
            axes &= copied_axes(self.capture, held_values(self.capture, name, found))
            if not axes:
                return axes
            value = promised(self.capture, name, expected)
            if value is not None:
                seen.append(value)
        varies = any(not torch.equal(value, seen[0]) for value in seen)
        return axes if varies else frozenset()

    def _generic(self, place: int) -> tuple[Values, list[Values]] | None:
        """Both programs on a draw of no special kind, run once for all promises; None where the draw is outside of what is assumed."""
        if place not in self.generic:
            try:
                self.generic[place] = self._both(leaf_values(self.capture, GENERIC[place], self.ranges))
            except UncoveredError:
                self.generic[place] = None
        return self.generic[place]

    def _both(
        self,
        leaves: dict[str, torch.Tensor],
        jitter: torch.Generator | None = None,
        tied: Tied | None = None,
        ties: Ties = "own",
    ) -> tuple[Values, list[Values]]:
        """The values of both programs.  Where they are disturbed, the specification takes any of equal numbers, and ranks take them as ``ties`` says."""
        assert self.capture.spec is not None
        ours, theirs = tied or ([], [])
        held = self._held(asks=jitter is None)
        plain = Arithmetic(
            frozenset(), jitter, self.own, self.numbers, ours, held, self.single, "own" if jitter is None else "random"
        )
        how = replace(plain, sharp=self.sharp, tied=theirs, ties=ties)
        # What the specification makes of memory that nobody wrote is open; what ranks make of it is another value than the specification's.
        plain = replace(plain, memory=1 if jitter is None else int(torch.randint(2, 1 << 31, (), generator=jitter)))
        _begin(self.fuel, self.work[0])
        plain, how = replace(plain, outside=set()), replace(how, outside=set())
        expected, found = run_graph(self.capture.spec, leaves, how=plain), self.ranks(leaves, how)
        for rank in how.outside if not plain.outside and not self.reduced else ():
            _leave_out(self.capture.ranks[rank], found[rank])
        return expected, found

    def _held(self, asks: bool) -> Held | None:
        return Held(self.casts, self.settled, asks, self.soft) if self.casts else None

    def _noise(
        self, draw: Draw, leaves: dict[str, torch.Tensor], expected: Values, found: Sequence[Values], ties: Ties
    ) -> tuple[dict[str, float], list[tuple[Values, list[Values]]], Tied]:
        """How far each promised value moves, in either program, when every operation is disturbed; these runs; and the calls that chose among equal numbers.

        Of two equal numbers one run takes either, by chance the one that was taken before: where there are such, several are made.
        """
        moved = dict.fromkeys((promise.name for promise in self.promises), 0.0)
        jitter, tied = torch.Generator().manual_seed(draw.seed), (list[Node](), list[Node]())
        least = _ROUNDINGS if self.casts or self.sharp or self.own or self.numbers else 1
        runs = []
        for again in range(self.choices):
            if again >= least and not tied[0] and not (tied[1] and ties == "random"):
                break
            expected_again, found_again = self._both(leaves, jitter, tied, ties)
            runs.append((expected_again, found_again))
            pairs = zip(self.capture.graphs, (expected, *found), (expected_again, *found_again), strict=True)
            for graph, before, after in pairs:
                for name in moved:
                    if name in graph.outputs:
                        var = graph.outputs[name]
                        moved[name] = max(moved[name], _distance(before[var], after[var]))
        return moved, runs, tied


def _leave_out(graph: Graph, values: Values) -> None:
    """A rank that ends in an error has no outputs."""
    for out in set(graph.outputs.values()):
        if values[out].dtype.is_floating_point:
            values[out] = torch.full_like(values[out], torch.nan)


def _begin(fuel: Fuel, steps: int) -> None:
    """Count a run of some steps, which begins where there is any fuel."""
    if fuel.spent:
        raise OutOfFuelError(str(fuel))
    burn(steps)


def _but_for_moving(one: Comparison, again: Sequence[Comparison]) -> Comparison:
    """The comparison with the expected element for every found one where either moves by more than rounding."""
    if not one.shaped:
        return one
    slack = Slack(0.0, strict=True)
    moving = torch.zeros(one.expected.shape, dtype=torch.bool)
    for other in again:
        if not other.shaped:
            return replace(one, found=one.expected)
        moving |= slack.apart(one.expected, other.expected) | slack.apart(one.found, other.found)
    return replace(one, found=torch.where(moving, one.expected, one.found))


def _apart(one: torch.Tensor, other: torch.Tensor, slack: Slack) -> bool:
    return bool(slack.apart(one, other).any())


def _agree(option: list[Comparison], slack: Slack) -> bool:
    """Whether what several ranks have of one and the same is the same on all of them."""
    first = next((c for c in option if c.expected is option[0].expected), None)
    alike = [c for c in option if first is not None and c.expected is first.expected]
    return first is None or not any(
        c.found.shape != first.found.shape or _apart(first.found, c.found, slack) for c in alike
    )


def _closest(alternatives: list[list[Comparison]], slack: Slack) -> list[Comparison]:
    """The alternative that fails in the fewest elements: what the program most likely meant."""

    def failing(option: list[Comparison]) -> float:
        shares = [float(slack.apart(c.expected, c.found).double().mean()) if c.shaped else 2.0 for c in option]
        return max(shares, default=2.0)

    return min(alternatives, key=failing)


def _has_numbers(value: torch.Tensor) -> bool:
    return value.numel() == 0 or bool(torch.isfinite(value).any())


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    if a.shape != b.shape:
        return float("inf")
    if not a.numel() or a.dtype.is_complex:
        return 0.0
    if not a.dtype.is_floating_point:
        return 0.0 if torch.equal(a, b) else float("inf")
    return float(torch.nan_to_num(a - b, 0.0, 0.0, 0.0).abs().max())


def _refuted(alternatives: Sequence[Sequence[Comparison]], slack: Slack) -> bool:
    """Whether every alternative fails somewhere."""
    return all(
        any(not c.shaped or bool(slack.apart(c.expected, c.found).any()) for c in option) for option in alternatives
    )


def own_literals(capture: Capture) -> frozenset[str]:
    """The literals in float32, by digest, that only the specification or only the ranks have."""
    assert capture.spec is not None
    literals = [
        {one.digest for graph in graphs for one in graph.constants.values() if one.type.dtype == "float32"}
        for graphs in ((capture.spec,), capture.ranks)
    ]
    return frozenset(literals[0] ^ literals[1])


def foreign_types(capture: Capture) -> frozenset[str]:
    """Narrow float types that ranks compute in and the specification does not have at all.

    Arithmetic in them is rounded as the hardware rounds it; a type that the specification has too stands for the reals.
    """
    spec = capture.spec
    theirs = {kind.dtype for graph in capture.ranks for kind in graph.types.values()} & NARROW
    ours = {kind.dtype for kind in spec.types.values()} if spec is not None else set()
    return frozenset(theirs - ours)
