"""Proof stage by stage: what a memo knows of a stage is not proved again.

Each stage is proved for all values of its leaves and of the cut tensors that come in; the ranks' cut tensors come in as the windows of the
specification's that the stage before was proved to make of them.  So the stages together prove the whole, and a stage that is spelt like one proved before
is proved.  What is not proved this way is not thereby unproved: the program is then looked at as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from graphguard.ir import Capture, Promise, Var
from graphguard.ir.fuel import Fuel
from graphguard.ir.joining import Joined
from graphguard.refine.evaluation.universes import Universes
from graphguard.refine.found.layouts import Layouts
from graphguard.refine.found.lookup import Lookup
from graphguard.refine.found.promises import needed_by, told
from graphguard.refine.outcome import PromiseOutcome
from graphguard.refine.proving.memo import Memo, Result
from graphguard.refine.proving.regions import Failed, StageRun
from graphguard.refine.stages.calls import Row
from graphguard.refine.stages.cuts import Division, Regions, Steps
from graphguard.refine.stages.spelling import Facts, Number, Speller, Spelt
from graphguard.refine.stages.windows import Windowed
from graphguard.relations.algebra import Unsupported
from graphguard.rules import Trait

_RESTARTS: Final = 16  # how often facts that were stated late may start regions again
_OPENED: Final = 4  # cuts that may turn out to be none before the program is rather looked at as a whole
_REST: Final = -1  # the region of what no stage reads


@dataclass(slots=True)
class Region:
    """A region on its way through its stages; ``chain`` are those that are behind it, ``token`` names the last."""

    speller: Speller
    token: int = 0
    chain: list[tuple[int, Spelt, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Segments:
    """A program that was proved stage by stage; ``evaluated`` counts the calls that no memory answered for."""

    promises: tuple[PromiseOutcome, ...]
    facts: Facts
    assumed: frozenset[str]
    regions: dict[int, Region]
    work: Work
    evaluated: int


class Work:
    """One capture, ready to be proved stage by stage."""

    def __init__(
        self, capture: Capture, joined: Joined, traits: Mapping[str, Trait], memo: Memo, division: Division
    ) -> None:
        self.capture = capture
        self.joined = joined
        self.traits = traits
        self.memo = memo
        self.division = division
        self.leaves = {leaf.name: leaf for leaf in capture.leaves}
        self.evaluated = 0
        self.facts: Facts = {}
        self.regions: dict[int, Region] = {}
        self._windows: dict[tuple[int, int], tuple[Var, Windowed | None]] = {}
        self._results: list[Result | None] = [None] * len(division.stages)
        self._joined = Regions(len(division.stages))
        self._restarts = self._opened = 0
        self._steps = Steps(division, joined)
        self._context: Row = (
            tuple(capture.mesh.items()),
            len(capture.ranks),
            tuple(sorted(capture.traits.items())),
            tuple(
                sorted(division.floats)
            ),  # of other stages as well: they say what a literal is, and where arithmetic is coarse
        )

    def prove(self, fuel: Fuel) -> Segments:
        """Prove every stage, from memory where it can be; raises ``Failed``, ``Unspelt``, and what evaluation raises."""
        number = 0
        while number < len(self.division.stages):
            if self._results[number] is not None:
                number += 1
                continue
            result = self._settle(number, fuel)
            stale = self._learn(result, self.root(number))
            if not stale:
                self._results[number] = result
                stale = self._pass_on(number, result)
            if stale:
                self._forget(stale)
                number = 0
        return Segments(self._outcomes(), self.facts, self._assumed(), self.regions, self, self.evaluated)

    @property
    def settled(self) -> frozenset[str]:
        """The promises that are proved, also where the work came to no end."""
        done = zip(self.division.stages, self._results, strict=True)
        return frozenset(promise.name for stage, result in done if result is not None for promise in stage.promises)

    def root(self, number: int) -> int:
        """The region of a stage, as the key of ``regions``."""
        return self._joined.root(self.division.stages[number].region)

    def _settle(self, number: int, fuel: Fuel) -> Result:
        """The result of one stage."""
        root = self.root(number)
        region = self.regions.get(root)
        if region is None:
            region = self.regions[root] = Region(Speller(self.division, self.leaves, self.facts))
        stage = self.division.stages[number]
        spelt = region.speller.stage(stage, self._windows)
        asked, entered = region.speller.promised(stage) if stage.promises else (None, False)
        if asked is not None and entered:  # later stages may read what they brought in
            spelt.add(asked)
            asked = None
        return self._result(number, region, spelt, asked, fuel)

    def _pass_on(self, number: int, result: Result) -> set[int]:
        """Let the stages that follow read the cut after a stage; the regions that must be taken again for it."""
        if number == len(self.division.cuts):
            return set()
        if result.open:
            return self._join(self.root(number), self.root(number + 1))
        whole, *held = self.division.cuts[number]
        windows: dict[tuple[int, int], tuple[Var, Windowed | None]] = {(0, whole.id): (whole, None)}
        for graph, (var, window) in enumerate(zip(held, result.windows, strict=True), 1):
            windows[graph, var.id] = (whole, window)
        same = all(self._windows.get(key, value) == value for key, value in windows.items())
        self._windows.update(windows)
        return set() if same else set(self.regions)

    def _join(self, a: int, b: int) -> set[int]:
        """Make one region of two that a cut does not part; both are taken again where both have begun."""
        a, b = sorted((a, b))
        if a == b:
            return set()
        self._joined.join(a, b)
        if b not in self.regions:
            return set()
        begun = {a, b} & self.regions.keys()
        if a in self.regions:
            return begun
        self.regions[a] = self.regions.pop(b)
        return set()

    def _forget(self, regions: set[int]) -> None:
        """Take regions from their first stage again."""
        self._restarts += 1
        if self._restarts > _RESTARTS:
            raise Failed("ranges of indices do not settle")
        for root in regions:
            self.regions.pop(root, None)
        for number in range(len(self._results)):
            if self.root(number) in regions:
                self._results[number] = None

    def _learn(self, result: Result, root: int) -> set[int]:
        """Take over the facts of a stage; the regions that one of them bears on and that did without it so far."""
        late: set[int] = set()
        named = self.regions[root].speller.named
        names = {number: name for name, number in named.items()} if result.facts else {}
        for number, low, high in result.facts:
            name = names[number]
            known = self.facts.get(name)
            fresh = (low, high) if known is None else (max(low, known[0]), min(high, known[1]))
            if fresh != known:
                self.facts[name] = fresh
                late |= {other for other, region in self.regions.items() if name in region.speller.named}
                if not result.late:
                    late.discard(root)
        return late

    def _outcomes(self) -> tuple[PromiseOutcome, ...]:
        outcomes: dict[str, PromiseOutcome] = {}
        for stage, result in zip(self.division.stages, self._results, strict=True):
            assert result is not None
            for promise, found in zip(stage.promises, result.found, strict=True):
                text = found.replace("\0", promise.name)
                outcome = PromiseOutcome(promise.name, True, needed_by(promise, self.capture), text)
                outcomes[promise.name] = told(outcome, promise)
        return tuple(outcomes[promise.name] for promise in self.capture.promises)

    def _assumed(self) -> frozenset[str]:
        return frozenset(text for result in self._results if result is not None for text in result.assumed)

    def _result(self, number: int, region: Region, spelt: Spelt, asked: Spelt | None, fuel: Fuel) -> Result:
        """The result of a stage, whose promises have rows of their own where ``asked`` says them."""
        rows = tuple(spelt.rows) if region.chain else (self._context, *spelt.rows)
        key = (region.token, rows)
        known = self.memo.get(key)
        cut = self._cut(number, region)
        if known is not None and cut and known.result.cut != cut:  # the same calls, of which another tensor is read on
            key = (region.token, (*rows, ("cut", *cut)))
            known = self.memo.get(key)
        if known is None:
            promises = () if asked is not None else self.division.stages[number].promises
            known = self.memo.put(key, *self._prove(number, region, spelt, promises, fuel))
            self._opened += known.result.open
            if self._opened > _OPENED:
                raise Failed("the ranks' tensors are not windows of the specification's")
        region.token = known.token
        region.chain.append((number, spelt, known.token))
        if known.result.failure or asked is None:
            return _unfailed(known.result)
        return _unfailed(known.result.and_of_promises(self._promised(number, region, asked, fuel)))

    def _cut(self, number: int, region: Region) -> tuple[Number | None, ...]:
        """The numbers of the tensors of the cut after a stage, the specification's first; empty after the last."""
        if number == len(self.division.cuts):
            return ()
        tensors = self.division.cuts[number]
        return tuple(region.speller.number(graph, var.id) for graph, var in enumerate(tensors))

    def _prove(
        self, number: int, region: Region, spelt: Spelt, promises: tuple[Promise, ...], fuel: Fuel
    ) -> tuple[Result, Universes]:
        state = self.memo.take(region.token) if region.chain else None
        if state is None:
            state = self._rebuilt(region, fuel)
        state.algebra.universe.fuel = fuel
        run = StageRun(self.capture, self.joined, self.division, self.traits, region.speller, state)
        abstraction = run.run(number, spelt, self._steps.of(number))
        self.evaluated += spelt.calls
        try:
            result = run.result(promises, number, abstraction)
        except (Failed, Unsupported) as reason:
            result = Result(failure=str(reason))
        return replace(result, cut=self._cut(number, region)), state

    def _promised(self, number: int, region: Region, asked: Spelt, fuel: Fuel) -> Result:
        """What holds of the promises after a stage: what only they depend on is no part of what the stage is known by."""
        key = (region.token, tuple(asked.rows))
        known = self.memo.get(key)
        if known is None:
            state = self.evaluate(region, fuel)
            run = StageRun(self.capture, self.joined, self.division, self.traits, region.speller, state)
            try:
                result = run.held(self.division.stages[number].promises)
            except (Failed, Unsupported) as reason:
                result = Result(failure=str(reason))
            known = self.memo.put(key, result, None)
        return known.result

    def _rebuilt(self, region: Region, fuel: Fuel) -> Universes:
        """A region's stages so far, evaluated anew."""
        state = Universes(fuel)
        for number, spelt, _ in region.chain:
            run = StageRun(self.capture, self.joined, self.division, self.traits, region.speller, state)
            run.run(number, spelt, self._steps.of(number) if number >= 0 else [])
            self.evaluated += spelt.calls
        return state

    def rest(self, places: list[dict[int, int]]) -> Region:
        """A region of the static tensors that no stage reads; ``places`` has the others by graph and number."""
        region = Region(Speller(self.division, self.leaves, self.facts))
        unread = [
            [var for var in graph.types if var.id not in place and var.id not in home]
            for graph, place, home in zip(self.division.graphs, places, self.division.home, strict=True)
        ]
        region.chain.append((-1, region.speller.static(unread), 0))
        return region

    def evaluate(self, region: Region, fuel: Fuel) -> Universes:
        """The values of a region that went through all its stages."""
        state = self.memo.state(region.token)
        if state is None:
            state = self._rebuilt(region, fuel)
            if region.token:
                self.memo.keep(region.token, state)
        state.algebra.universe.fuel = fuel
        return state


def _unfailed(result: Result) -> Result:
    """A result that says something; raises ``Failed`` for others."""
    if result.failure:
        raise Failed(result.failure)
    return result


class Answers:
    """Relations of a program that was proved stage by stage: every region is asked about its own tensors."""

    def __init__(self, segments: Segments) -> None:
        self.segments = segments
        self.work = segments.work
        self._lookups: dict[int, Lookup] = {}
        self._names: dict[int, dict[Var, str]] = {}
        self._places: list[dict[int, int]] | None = None

    def lookup(self, graph: int, var: Var, fuel: Fuel) -> Lookup:
        """The tables that have a tensor of a graph (0 for the specification, then the ranks)."""
        root = self._root(graph, var)
        found = self._lookups.get(root)
        if found is None:
            region = self.segments.regions[root]
            state = self.work.evaluate(region, fuel)
            specification, *ranks = state.tables(region.speller.numbers())
            layouts = Layouts(state.algebra, self.work.capture)
            found = self._lookups[root] = Lookup(self.work.capture, specification, ranks, layouts, self._names)
        found.universe.fuel = fuel
        return found

    def _root(self, graph: int, var: Var) -> int:
        home = self.work.division.home[graph].get(var.id)
        if home is not None:
            return self.work.root(home)
        if self._places is None:  # static tensors: the first region that reads them
            self._places = [{} for _ in self.work.division.graphs]
            for root, region in self.segments.regions.items():
                for place, numbers in zip(self._places, region.speller.numbers(), strict=True):
                    for known in numbers:
                        place.setdefault(known, root)
            self.segments.regions[_REST] = self.work.rest(self._places)
        return self._places[graph].get(var.id, _REST)
