"""What could stand at sites in the place of what does: the specification's tensors, laid out in every clean way."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from graphguard.diagnose.localise.layouts import Cut, Laid, Layouts
from graphguard.diagnose.localise.numbers import Place, Run, same
from graphguard.diagnose.localise.sites import MOVES, Site, Sites
from graphguard.ir import Graph, Var
from graphguard.ir.graph import COLLECTIVES
from graphguard.relations.numbers import Array, kind_of_array

_MOST: Final = 120  # of one kind at one site
_PASSES: Final = 8  # of a family that are tried one by one
_COUNTS: Final = 4  # numbers of the specification's that are tried as factors
_CARRIED: Final = 40  # sites that are asked for what one carries


@dataclass(frozen=True, slots=True)
class Intervention:
    """Values for some sites at once (None: zeros), or a factor for all of them; with ``of`` the factor is a power of a number that the specification computes."""

    sites: tuple[Site, ...]
    laid: tuple[Laid | None, ...] = ()
    factor: float | None = None
    of: Var | None = None


@dataclass(slots=True)
class Interventions:
    """The interventions on sites, the likeliest first."""

    sites: Sites
    layouts: Layouts
    _calls: list[list[Var]] = field(default_factory=list)

    def __post_init__(self) -> None:
        families: dict[object, list[Var]] = defaultdict(list)
        graph = self.spec
        for node in graph.nodes:
            stacks = graph.stack_of(node.stack), graph.stack_of(node.forward)
            for slot, out in enumerate(node.outs):
                families[node.op, stacks, node.phase, slot].append(out)
        self._calls = [family for family in families.values() if len(family) > 1]

    @property
    def spec(self) -> Graph:
        """The specification."""
        spec = self.sites.numbers.capture.spec
        assert spec is not None
        return spec

    @property
    def run(self) -> Run:
        """The first draw."""
        return self.sites.numbers.runs[0]

    def values(self, tried: Intervention, run: Run) -> dict[Place, Array] | None:
        """What an intervention puts where, but for what is there already; None where it does not fit."""
        found: dict[Place, Array] = {}
        if tried.factor is not None:
            places = [(rank, var) for site in tried.sites for rank, var in site.tensors.items()]
            factor = tried.factor if tried.of is None else float(run.spec[tried.of]) ** tried.factor
            return {(rank, var): run.ranks[rank][var] * factor for rank, var in places}
        for site, laid in zip(tried.sites, tried.laid, strict=True):
            held = {rank: run.ranks[rank][var] for rank, var in site.tensors.items()}
            needed = (
                {rank: np.zeros_like(value) for rank, value in held.items()}
                if laid is None
                else self.layouts.values(laid, run, held)
            )
            for rank, value in needed.items():
                if value.shape != held[rank].shape:
                    return None
                value = value.astype(held[rank].dtype)
                if not same(value, held[rank]):
                    found[rank, site.tensors[rank]] = value
        return found

    def at(self, family: Sequence[Site], most: int = _MOST) -> Iterator[Intervention]:
        """Interventions on a family: one tensor at every pass, piece by piece, pass by pass, one pass holding all, and single passes; taken in turn, so many of each."""
        first, k = family[0], len(family)
        stages: list[Iterator[Intervention]] = []
        shapes = {self.run.ranks[site.rank][site.tensors[site.rank]].shape for site in family}
        every = tuple(family)
        if k > 1 and len(shapes) == 1:
            stages.append(Intervention(every, (laid,) * k) for laid in self.laid(first))
            stages.append(
                Intervention(every, tuple(self.layouts.other(laid, k, number) for number in range(k)))
                for laid in self.laid(first, (k,))
                if any((cut.piece, cut.pieces) == (0, k) for cut in laid.cuts)
            )
            stages.append(self._pass_by_pass(every))
            if self.run.ranks[first.rank][first.tensors[first.rank]].dtype.kind == "f":
                stages.append(Intervention(every, (laid, *[None] * (k - 1))) for laid in self.laid(first, shares=False))
        stages.extend(map(self._alone, family if k <= _PASSES else (family[0], family[-1])))
        for row in itertools.zip_longest(*(itertools.islice(stage, most) for stage in stages)):
            yield from (one for one in row if one is not None)

    def _alone(self, site: Site) -> Iterator[Intervention]:
        return (Intervention((site,), (laid,)) for laid in self.laid(site))

    def _pass_by_pass(self, family: tuple[Site, ...]) -> Iterator[Intervention]:
        """Every pass gets the tensor of the specification's pass of the same number, or of the last first."""
        run = self.run
        like = [
            calls
            for calls in self._calls
            if len(calls) == len(family)
            and all(var in run.spec for var in calls)
            and len({run.spec[var].shape for var in calls}) == 1
        ]
        for laid in self.laid(family[0]):
            for calls in like:
                if laid.var in (calls[0], calls[-1]):
                    order = calls if laid.var == calls[0] else calls[::-1]
                    yield Intervention(family, tuple(replace(laid, var=var) for var in order))

    def laid(
        self, site: Site, pieces: tuple[int, ...] = (1,), shares: bool = True, of: Collection[Var] | None = None
    ) -> Iterator[Laid]:
        """What could stand at a site: tensors of the specification that are like it first, or some of them alone."""
        held = {rank: self.run.ranks[rank][var] for rank, var in site.tensors.items()}
        value = held[site.rank]
        wanted = {rank: each.shape for rank, each in held.items()}
        ways: dict[tuple[int, ...], list[tuple[Cut, ...]]] = {}
        carried = self._own(site)
        asked = (self._near(carried) if site.is_right else self.layouts.tensors) if of is None else of
        for var in sorted(asked, key=lambda var: self._unlike(site, var, carried)):
            whole = self.run.spec[var]
            if whole.ndim != value.ndim or kind_of_array(whole) != kind_of_array(value):
                continue
            shape = whole.shape
            if shape not in ways:
                ways[shape] = list(self.layouts.choices(shape, wanted, pieces))
            for cuts in ways[shape]:
                yield from self.layouts.ways(var, cuts, shares)

    def jointly(self, sites: Sequence[Site]) -> Iterator[Intervention]:
        """Several calls on one line, each with what it carries, all in one layout; those that have it already stay."""
        roles: dict[object, dict[int, Laid]] = {}
        for site in sites:
            for laid in self.laid(site, of=self._own(site)):
                roles.setdefault(self.layouts.role(laid), {}).setdefault(site.number, laid)
        for chosen in roles.values():
            if len(chosen) > 1:
                yield Intervention(tuple(self.sites[number] for number in chosen), tuple(chosen.values()))

    def _near(self, own: set[Var]) -> list[Var]:
        """What could stand in the place of what is right: the same in another layout, or what the specification makes of it alone.

        Another tensor, if it mends, makes up for a defect elsewhere.
        """
        return [var for var in self.layouts.tensors if var in own or own.intersection(self.layouts.sources(var))]

    def _own(self, site: Site) -> set[Var]:
        return {state.var for state in site.states} | set(self.carried(site))

    def carried(self, site: Site) -> list[Var]:
        """The tensors of the specification that a site is a copy or a part of, by way of moves and collectives."""
        passing = MOVES | COLLECTIVES
        found: list[Var] = []
        todo, seen = [site], set[int]()
        while todo and len(seen) < _CARRIED:
            one = todo.pop(0)
            if one.number in seen:
                continue
            seen.add(one.number)
            if one.states and one is not site:
                found += [state.var for state in one.states if state.var not in found]
            elif one.node.op in passing:
                todo += self.sites.operands(one)
        return found

    def _unlike(self, site: Site, var: Var, carried: set[Var]) -> tuple[int, int, int]:
        """How little a tensor of the specification looks like a site: another operator, another place of the source."""
        if var in carried:
            return -1, 0, var.id
        node = self.layouts.makers.get(var)
        if node is None:
            return 3, 0, var.id
        mine = [frame.span.line for frame in self.sites.numbers.capture.ranks[site.rank].stack_of(site.node.stack)]
        theirs = [frame.span.line for frame in self.spec.stack_of(node.stack)]
        return int(node.op != site.node.op), int(mine[:1] != theirs[:1]), var.id

    def counts(self) -> list[tuple[float, Var]]:
        """Powers of numbers that the specification computes of its inputs, as how many targets there are: what sums and means differ by."""
        runs = self.sites.numbers.runs
        found = [
            node.outs[0]
            for node in self.spec.nodes
            if node.outs and all(node.outs[0] in run.spec and run.spec[node.outs[0]].ndim == 0 for run in runs)
        ]
        numbers = {var: tuple(float(run.spec[var]) for run in runs) for var in found}
        kept = [var for var, row in numbers.items() if all(each > 1 and each == round(each) for each in row)]
        return [(power, var) for var in kept[:_COUNTS] for power in (-1.0, 1.0)]

    def factors(self) -> list[float]:
        """The factors that a program can have once too often or too seldom: sizes of axes, passes of loops, numbers in calls."""
        capture = self.sites.numbers.capture
        numbers = {float(size) for size in capture.mesh.values()} | {float(capture.world_size)}
        numbers |= {float(len(family)) for family in self.sites.families}
        for graph in (self.spec, *capture.ranks[:1]):
            numbers |= {
                abs(float(arg))
                for node in graph.nodes
                for arg in node.args
                if isinstance(arg, int | float) and not isinstance(arg, bool)
            }
        sizes = {float(size) for size in capture.mesh.values()}
        kept = sorted(
            (number for number in numbers if number not in (0.0, 1.0) and 1e-6 < number < 1e6),
            key=lambda number: (number not in sizes, number),
        )
        return [factor for number in kept[:24] for factor in (number, 1 / number)]
