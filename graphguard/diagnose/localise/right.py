"""Which sites are right as they are: what of the specification every site is, and in which layout."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from graphguard.diagnose.localise.layouts import Cut, Laid, Layouts
from graphguard.diagnose.localise.numbers import Run, same
from graphguard.diagnose.localise.sites import MOVES, Site, Sites
from graphguard.ir import Var
from graphguard.ir.joining import JoinedCall
from graphguard.ops import gg
from graphguard.refine.proving.proof import Proof
from graphguard.relations.numbers import Array, Number, kind_of_array

_STATES: Final = 4  # of one site: equal tensors and layouts are many
_LONG: Final = 512  # positions of a dim along which rows are looked up
_LARGE: Final = 1 << 16  # elements of a tensor whose rows are
_DIMS: Final = 3
_FIRST, _STEP = 10_007, 7  # numbers that no program computes of others by adding one or doubling

_Corner = dict[float, list[Var]]


@dataclass(slots=True)
class Right:
    """States of sites: the proof's relations first, which hold for all inputs; numbers for what it has no words for."""

    sites: Sites
    layouts: Layouts
    proof: Proof
    _shapes: dict[tuple[str, tuple[int, ...]], list[Var]] = field(default_factory=dict)
    _corners: dict[tuple[str, tuple[int, ...], tuple[int, ...]], _Corner] = field(default_factory=dict)

    @property
    def runs(self) -> list[Run]:
        """The draws, on all of which a state must hold."""
        return self.sites.numbers.runs

    def find(self, proved: bool = True) -> None:
        """Set the states of all sites; ``proved``: the proof is that of the programs as they run."""
        if not self._shapes:
            for var in self.layouts.tensors:
                value = self.runs[0].spec[var]
                self._shapes.setdefault((kind_of_array(value), value.shape), []).append(var)
            self._learn()
        passes = {site.number: len(family) for family in self.sites.families for site in family if len(family) > 1}
        for site in self.sites.all:
            site.states = []
            site.live &= self.sites.is_known(site)
            if site.live:
                self._settle(site, passes.get(site.number, 1), proved)
        for family in self.sites.families:
            if len(family) > 1 and all(site.live and not site.states for site in family):
                self._add_up(family)

    def apart(self) -> dict[int, str]:
        """Sites that are no tensor of the specification together, and whose calls read different ones along an axis, of which ranks there have tensors of their own: by number, with the axis."""
        found: dict[int, str] = {}
        wrong = [
            site
            for site in sorted(self.sites.all, key=lambda site: site.order)
            if site.live and not site.states and not site.mixed and len(site.tensors) > 1
        ]
        for site in wrong:
            for axis in self.layouts.axes:
                if self._reads_apart(site, axis, found) and self._is_alone(site, axis):
                    found[site.number] = axis
                    break
        for axis in self._staged() & set(found.values()):
            for site in self.sites.all:
                made = site.live and not (site.is_leaf or site.mixed) and len(site.tensors) > 1
                if made and not any(self._is_along(state, axis) for state in site.states):
                    found.setdefault(site.number, axis)
        return found

    def _is_along(self, laid: Laid, axis: str) -> bool:
        """Whether a tensor is cut or added up along an axis."""
        return axis in laid.partial or axis in self.layouts.axes_of(laid)

    def _staged(self) -> set[str]:
        """The axes along which ranks send to one another: of stages of a pipeline, nothing adds up."""
        capture = self.layouts.capture
        found: set[str] = set()
        for step in self.sites.numbers.joined.order:
            if isinstance(step, JoinedCall) and any(
                capture.ranks[rank].nodes[index].op == gg.recv for rank, index in step.nodes.items()
            ):
                places = [capture.coordinates(rank) for rank in step.group]
                found |= {axis for axis in self.layouts.axes if len({place[axis] for place in places}) > 1}
        return found

    def _reads_apart(self, site: Site, axis: str, found: Mapping[int, str]) -> bool:
        """Whether a call reads other sites on some ranks along an axis than on others, or what is taken apart along it."""
        if any(found.get(number) == axis for number in site.operands) or site.node.op == gg.recv:
            return True
        capture = self.layouts.capture
        read: dict[int, set[int]] = defaultdict(set)
        for rank, var in site.tensors.items():
            node = capture.ranks[rank].nodes[capture.ranks[rank].producers().get(var, -1)] if site.index >= 0 else None
            if node is None or var not in node.outs:
                return False
            read[capture.coordinates(rank)[axis]] |= {
                self.sites.owner[rank, each] for each in node.reads if (rank, each) in self.sites.owner
            }
        several = {number for numbers in read.values() for number in numbers}
        calls = {self.sites[number].index for number in several if self.sites[number].index >= 0}
        leaves = sum(self.sites[number].is_leaf for number in several)
        return len(calls) + leaves > max(map(len, read.values()))

    def _is_alone(self, site: Site, axis: str) -> bool:
        """Whether ranks at one place along an axis have a tensor of the specification that is not cut or added up along it."""
        groups: dict[int, dict[int, Var]] = defaultdict(dict)
        for rank, var in site.tensors.items():
            groups[self.layouts.capture.coordinates(rank)[axis]][rank] = var
        if len(groups) < 2:
            return False
        for tensors in groups.values():
            part = replace(site, tensors=tensors, rank=min(tensors))
            for laid in self._candidates([part], (1,)):
                if not self._is_along(laid, axis) and self._state([part], laid) is not None:
                    return True
        return False

    def _settle(self, site: Site, passes: int, proved: bool) -> None:
        known = self._proved(site) if proved and not site.is_leaf and not site.mixed else None
        pieces = (1, passes) if passes > 1 else (1, 2, 3, 4) if site.node.op in MOVES else (1,)
        for laid in [known] if known is not None else self._candidates([site], pieces):
            state = self._state([site], laid)
            if state is not None and state not in site.states:
                site.states.append(state)
            if len(site.states) >= _STATES:
                break

    def _proved(self, site: Site) -> Laid | None:
        """What the proof knows a site to be, whole or in parts in their order."""
        relation = self.proof.group(site.tensors)
        if relation is None or relation.placements is None or relation.factor != 1:
            return None
        target = self.layouts.same_as.get(relation.target)
        if target is None or any(
            place.kind == "partial" and place.reduce != "sum" for place in relation.placements.values()
        ):
            return None
        shape = self.runs[0].spec[target].shape
        shards: dict[int, list[str]] = defaultdict(list)
        for axis in self.layouts.axes:
            place = relation.placements.get(axis)
            if place is not None and place.kind == "shard":
                shards[place.dim].append(axis)
        cuts = []
        for dim, axes in shards.items():
            numbers = (
                n for n, s in enumerate(self.layouts.selections(shape[dim])) if s.plain and s.axes == tuple(axes)
            )
            cuts += [Cut(dim, number) for number in [next(numbers, None)] if number is not None]
        partial = tuple(
            a for a in self.layouts.axes if (p := relation.placements.get(a)) is not None and p.kind == "partial"
        )
        return Laid(target, tuple(cuts), partial)

    # -- numbers

    def _candidates(self, family: Sequence[Site], pieces: Sequence[int]) -> Iterator[Laid]:
        """The layouts of which the first element on one rank, or its sum over ranks, is as the specification has it."""
        run, first = self.runs[0], family[0]
        held = {rank: run.ranks[rank][var] for rank, var in first.tensors.items()}
        value = held[first.rank]
        if not value.size or _is_constant(held):
            return
        kind, wanted = kind_of_array(value), {rank: each.shape for rank, each in held.items()}
        sums = self._sums(family, run)
        for other, shape in list(self._shapes):
            if other != kind or len(shape) != value.ndim:
                continue
            for cuts in self.layouts.choices(shape, wanted, pieces):
                place = self._corner(shape, cuts, first.rank)
                used = self.layouts.axes_of(Laid(self._shapes[kind, shape][0], cuts))
                for axes, total in sums.items():
                    if axes & used:
                        continue
                    partial = tuple(axis for axis in self.layouts.axes if axis in axes)
                    for mean, factor in self._factors(
                        first, kind, axes or used if first.node.phase == "backward" else axes
                    ):
                        for var in self._at(kind, shape, place).get(_rounded(total / factor), ()):
                            yield Laid(var, cuts, partial, mean=mean)

    def _factors(self, site: Site, kind: str, axes: Collection[str]) -> Iterator[tuple[bool, int]]:
        """How many times as large as a summand, or in the backward pass a shard, parts can be: of a mean over ranks, each has its own mean."""
        yield False, 1
        if kind == "float" and axes and not site.is_leaf:
            yield True, math.prod(self.layouts.capture.mesh[axis] for axis in axes)

    def _corner(self, shape: Sequence[int], cuts: Sequence[Cut], rank: int) -> tuple[int, ...]:
        place = [0] * len(shape)
        for cut in cuts:
            place[cut.dim] = int(self.layouts.positions(shape[cut.dim], cut, rank)[0])
        return tuple(place)

    def _at(self, kind: str, shape: tuple[int, ...], place: tuple[int, ...]) -> _Corner:
        """The specification's tensors of a shape by the element at a place."""
        key = kind, shape, place
        if key not in self._corners:
            found: _Corner = {}
            for var in self._shapes[kind, shape]:
                found.setdefault(_rounded(self.runs[0].spec[var][place]), []).append(var)
            self._corners[key] = found
        return self._corners[key]

    def _sums(self, family: Sequence[Site], run: Run) -> dict[frozenset[str], float]:
        """The first element of a site, summed over the ranks along some axes; of a family over its passes as well."""
        capture, first = self.sites.numbers.capture, family[0]
        found: dict[frozenset[str], float] = {}
        axes = self.layouts.axes
        home = capture.coordinates(first.rank)
        for count in range(1 << len(axes)):
            chosen = frozenset(axis for place, axis in enumerate(axes) if count >> place & 1)
            members = [
                rank
                for rank in first.tensors
                if all(at == home[axis] for axis, at in capture.coordinates(rank).items() if axis not in chosen)
            ]
            values = [
                run.ranks[rank][site.tensors[rank]] for rank in members for site in family if rank in site.tensors
            ]
            if len(members) > 1 or not chosen:
                if len(values) > 1 and (values[0].dtype == np.bool_ or any(not value.size for value in values)):
                    continue
                found[chosen] = sum(float(value.reshape(-1)[0]) for value in values)
        return found

    def _state(self, family: Sequence[Site], laid: Laid) -> Laid | None:
        """The layout as it is where a family has it on all draws: summands that are equal on all ranks are shares."""
        if not all(self.holds(family, laid, run) for run in self.runs):
            return None
        if laid.partial and not laid.mean and all(self._copied(family[0], laid, run) for run in self.runs):
            return replace(laid, share=True)
        return replace(laid, lacking=self.layouts.is_lacking(laid))

    def _copied(self, site: Site, laid: Laid, run: Run) -> bool:
        groups = self._groups(site, laid)
        values = [[run.ranks[rank][site.tensors[rank]] for rank in group] for group in groups]
        return all(same(group[0], other) for group in values for other in group[1:])

    def _groups(self, site: Site, laid: Laid) -> list[list[int]]:
        """The ranks whose summands belong together."""
        capture = self.sites.numbers.capture
        groups: dict[object, list[int]] = defaultdict(list)
        for rank in site.tensors:
            place = capture.coordinates(rank)
            groups[tuple(at for axis, at in place.items() if axis not in laid.partial)].append(rank)
        return list(groups.values())

    def holds(self, family: Sequence[Site], laid: Laid, run: Run) -> bool:
        """Whether a site, or all sites of a family together, are a tensor in a layout on a draw."""
        first, factor = family[0], self._times(laid)
        for group in self._groups(first, laid):
            values = [run.ranks[rank][site.tensors[rank]] for rank in group for site in family]
            if laid.partial or len(family) > 1:
                if len({value.shape for value in values}) > 1:
                    return False
                if not same(self.layouts.cut(laid, run, group[0]) * factor, np.sum(values, axis=0)):
                    return False
            elif not all(
                same(self.layouts.cut(laid, run, rank) * factor, value)
                for rank, value in zip(group, values, strict=True)
            ):
                return False
        return True

    def _times(self, laid: Laid) -> int:
        """How many times as large parts of a mean are as summands would be, or shards."""
        axes = (laid.partial or self.layouts.axes_of(laid)) if laid.mean else ()
        return math.prod(self.layouts.capture.mesh[axis] for axis in axes)

    def _add_up(self, family: Sequence[Site]) -> None:
        """A family whose passes, as micro-batches, add up to a tensor of the specification."""
        first, run = family[0], self.runs[0]
        if run.ranks[first.rank][first.tensors[first.rank]].dtype.kind != "f":
            return
        shapes = [{rank: run.ranks[rank][var].shape for rank, var in site.tensors.items()} for site in family]
        if any(each != shapes[0] for each in shapes):
            return
        for laid in self._candidates(family, (1,)):
            if self.holds(family, laid, run) and all(self.holds(family, laid, other) for other in self.runs):
                for site in family:
                    site.states = [replace(laid, passes=len(family))]
                return

    # -- what ranks show of how positions are dealt out

    def _learn(self) -> None:
        """Learn the positions along one dim that ranks have of tensors of the specification: zigzag, text beside images, loaders' parts."""
        run = self.runs[0]
        self._learn_from(run.spec, run.ranks, "f")
        for leaf, values in self._told_apart():
            spec, ranks = run.refuter.point.elsewhere({leaf: Number(values)})
            moved = [_moved(values, old) for values, old in zip(ranks, run.ranks, strict=True)]
            self._learn_from(_moved(spec, run.spec), moved, "iu")

    def _told_apart(self) -> Iterator[tuple[str, Array]]:
        """Inputs of integers with other numbers, no two alike: where these lie on the ranks is where they were moved, whatever tokens are equal."""
        for leaf in self.layouts.capture.leaves:
            value = self.runs[0].refuter.point.leaves.get(leaf.name)
            if leaf.kind == "input" and leaf.value is None and value is not None and value.array.dtype.kind in "iu":
                size = value.array.size
                if 1 < size <= _LARGE:
                    numbers = (np.arange(size) * _STEP + _FIRST).astype(value.array.dtype)
                    if len(np.unique(numbers)) == size:
                        yield leaf.name, numbers.reshape(value.array.shape)

    def _learn_from(self, spec: Mapping[Var, Array], ranks: Sequence[Mapping[Var, Array]], kinds: str) -> None:
        rows = self._rows(spec, kinds)
        size = self.sites.numbers.capture.world_size
        for site in self.sites.all:
            held = {rank: ranks[rank][var] for rank, var in site.tensors.items() if var in ranks[rank]}
            if len(held) < size or any(value.dtype.kind not in kinds for value in held.values()):
                continue
            for dim in range(min(held[site.rank].ndim, _DIMS)):
                found = self._dealt(held, dim, rows, spec)
                if found is not None:
                    self.layouts.learn(*found)

    def _rows(self, spec: Mapping[Var, Array], kinds: str) -> dict[object, tuple[Var, int]]:
        rows: dict[object, tuple[Var, int]] = {}
        for var in self.layouts.tensors:
            value = spec.get(var)
            if value is None or value.size > _LARGE or value.dtype.kind not in kinds:
                continue
            for dim in range(min(value.ndim, _DIMS)):
                if 1 < value.shape[dim] <= _LONG:
                    for place, row in enumerate(np.moveaxis(value, dim, 0)):
                        rows.setdefault(_row(dim, row), (var, place))
        return rows

    def _dealt(
        self, held: Mapping[int, Array], dim: int, rows: Mapping[object, tuple[Var, int]], spec: Mapping[Var, Array]
    ) -> tuple[int, dict[int, Array]] | None:
        picks, source = {}, None
        for rank, value in held.items():
            if dim >= value.ndim or not 0 < value.shape[dim] <= _LONG or value.size > _LARGE:
                return None
            found = []
            for row in np.moveaxis(value, dim, 0):
                place = rows.get(_row(dim, row))
                if place is None or source not in (None, place[0]):
                    return None
                source = place[0]
                found.append(place[1])
            if len(set(found)) < len(found):
                return None
            picks[rank] = np.array(found)
        if source is None:
            return None
        size = spec[source].shape[dim]
        whole = all(index.tolist() == list(range(size)) for index in picks.values())
        return None if whole else (size, picks)


def _moved(values: Mapping[Var, Number], before: Mapping[Var, Array]) -> dict[Var, Array]:
    """The tensors of a run at other numbers that rest on these."""
    return {
        var: value.array
        for var, value in values.items()
        if var in before and not np.array_equal(value.array, before[var])
    }


def _row(dim: int, row: Array) -> object:
    return dim, row.shape, row.tobytes()


def _rounded(value: float | Array) -> float:
    number = float(value)
    return float(f"{number if math.isfinite(number) else 0.0:.9e}")


def _is_constant(held: Mapping[int, Array]) -> bool:
    """Whether all ranks have one number everywhere: it says nothing of what it is."""
    values = list(held.values())
    first = values[0].reshape(-1)[0]
    return values[0].size > 1 and all(bool((value == first).all()) for value in values)
