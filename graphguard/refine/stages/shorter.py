"""A program without most of the layers that are alike: what is wrong with a deep stack is wrong with it, and is found in a few layers as easily.

Layers are alike where their regions are spelt alike (:mod:`graphguard.refine.stages.spelling`).  One between others like it is taken out in every graph: what came in goes on to what
read what it made.  Nothing is proved of a program by this; it says where to look.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from graphguard.ir import Capture, Node, Promise, Var
from graphguard.ir.graph import Arg
from graphguard.ir.validity import reads_ahead, well_formed
from graphguard.refine.stages.calls import Row, Unspelt
from graphguard.refine.stages.cuts import Division
from graphguard.refine.stages.spelling import Speller, Windows
from graphguard.refine.stages.windows import Windowed

_ENDS: Final = 2  # layers that are kept at both ends of a run of layers that are alike
_PERIOD: Final = 12  # regions after which others like them may follow
_ANY: Final = Windowed((), (), ())  # how ranks hold a cut tensor: it is the same for all layers, or they are not alike

Chain: TypeAlias = list[int]
"""The stages of a region."""


@dataclass(frozen=True, slots=True)
class Shorter:
    """A capture with fewer layers.

    ``stands_for`` are the promises that were taken out, by the kept one that is like them; ``places`` the nodes of the whole capture, by graph and node of this one: the same call, then those
    that are like it and were taken out.
    """

    capture: Capture
    stands_for: Mapping[str, tuple[str, ...]]
    places: tuple[Sequence[tuple[int, ...]], ...]


def shorter(capture: Capture, division: Division) -> Shorter | None:
    """The capture with fewer layers; None where it has no long run of layers that are alike."""
    try:
        chains, kinds = _regions(capture, division)
    except Unspelt:
        return None
    like: dict[int, int] = {}  # regions that are taken out, with the kept one that is like each
    for run, period in _runs(chains, kinds):
        first = (_ENDS - 1) * period
        for place in range(_ENDS * period, (len(run) // period - _ENDS) * period):
            like[run[place]] = run[first + place % period]
    stages = {stage for root in like for stage in chains[root]}
    if not like or not _can_pass(division, stages):
        return None
    parts = [_Part(division, graph, stages) for graph in range(len(division.graphs))]
    gone = set().union(*[part.gone for part in parts])
    if any(part.graph.outputs.keys() & gone or reads_ahead(part.graph) for part in parts):
        return None
    promises = tuple(promise for promise in capture.promises if promise.name not in gone)
    read = [{*graph.inputs.values()} for graph in (*division.graphs, *[part.graph for part in parts])]
    before, after = (set().union(*half) for half in (read[: len(parts)], read[len(parts) :]))
    spec, *ranks = [part.graph for part in parts]
    leaves = tuple(leaf for leaf in capture.leaves if leaf.name in after or leaf.name not in before)
    stands_for = _stands_for(division, chains, like)
    if not promises or gone != {name for names in stands_for.values() for name in names}:
        return None
    less = well_formed(replace(capture, leaves=leaves, spec=spec, ranks=tuple(ranks), promises=promises))
    places = tuple(part.places(chains, like) for part in parts)
    return Shorter(less, stands_for, places)


def _regions(capture: Capture, division: Division) -> tuple[dict[int, Chain], dict[int, int]]:
    """The regions by their first stage, in order: their stages, and by number what they are; raises ``Unspelt``."""
    leaves = {leaf.name: leaf for leaf in capture.leaves}
    windows: dict[tuple[int, int], tuple[Var, Windowed | None]] = {}
    for whole, *held in division.cuts:
        windows[0, whole.id] = whole, None
        windows.update({(graph, var.id): (whole, _ANY) for graph, var in enumerate(held, 1)})
    chains: dict[int, Chain] = {}
    rows: dict[int, list[Row]] = {}
    spellers: dict[int, Speller] = {}
    for number, stage in enumerate(division.stages):
        chains.setdefault(stage.region, []).append(number)
        speller = spellers.setdefault(stage.region, Speller(division, leaves, {}))
        rows.setdefault(stage.region, []).extend(_rows(speller, stage.promises, number, division, windows))
    known: dict[tuple[Row, ...], int] = {}
    return chains, {root: known.setdefault(tuple(mine), len(known)) for root, mine in rows.items()}


def _rows(
    speller: Speller, promises: Sequence[Promise], number: int, division: Division, windows: Windows
) -> Iterator[Row]:
    stage = division.stages[number]
    yield from speller.stage(stage, windows).rows
    if promises:
        yield from speller.promised(stage)[0].rows
    if number < len(division.cuts):
        yield ("cut", *[speller.number(graph, var.id) for graph, var in enumerate(division.cuts[number])])


def _runs(chains: Mapping[int, Chain], kinds: Mapping[int, int]) -> Iterator[tuple[list[int], int]]:
    """Regions of which each is like the one so many before it, in every stage; and how many that is: a layer may be cut more than once, and be of several kinds in turn."""
    roots = sorted(chains)

    def repeats(place: int, period: int) -> bool:
        one, other = roots[place - period], roots[place]
        return kinds[one] == kinds[other] and _are_apart(chains[one], chains[other], period)

    start = 0
    while start < len(roots):
        for period in range(1, _PERIOD + 1):
            end = start + period
            while end < len(roots) and repeats(end, period):
                end += 1
            if (end - start) // period > 2 * _ENDS:
                yield roots[start:end], period
                start = end
                break
        else:
            start += 1


def _are_apart(one: Chain, other: Chain, period: int) -> bool:
    return len(one) == len(other) and all(abs(a - b) == period for a, b in zip(one, other, strict=True))


def _can_pass(division: Division, stages: set[int]) -> bool:
    """Whether what comes in to stages that are taken out can stand for what they make, in every graph."""
    for last in (stage for stage in stages if stage + 1 not in stages):
        first = last
        while first - 1 in stages:
            first -= 1
        if not 0 < first <= last < len(division.cuts):
            return False
        made = zip(division.graphs, division.home, division.cuts[first - 1], division.cuts[last], strict=True)
        for graph, home, before, after in made:
            if graph.types[before] != graph.types[after] or home.get(after.id) not in stages:
                return False
    return True


def _stands_for(division: Division, chains: Mapping[int, Chain], like: Mapping[int, int]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for root, kept in like.items():
        for mine, other in zip(chains[root], chains[kept], strict=True):
            pairs = zip(division.stages[mine].promises, division.stages[other].promises, strict=True)
            for promise, its in pairs:
                found[its.name] = (*found.get(its.name, ()), promise.name)
    return found


class _Part:
    """One graph without some stages."""

    def __init__(self, division: Division, number: int, stages: set[int]) -> None:
        self.division, self.number = division, number
        whole = self.whole = division.graphs[number]
        instead: dict[Var, Var] = {}
        out: set[int] = set()
        for stage in sorted(stages):
            before = division.cuts[stage - 1][number]
            instead[division.cuts[stage][number]] = instead.get(before, before)
            out.update(self._own(stage))
        home = division.home[number]
        self._dropped: list[int] = []
        self.gone = {name for name, var in whole.outputs.items() if home.get(var.id) in stages}
        outputs = {name: var for name, var in whole.outputs.items() if name not in self.gone}
        self.kept = self._kept(out, instead, {*outputs.values()})
        nodes = tuple(_reading(whole.nodes[index], instead) for index in self.kept)
        read = {var for node in nodes for var in node.reads} | {*outputs.values()}
        unread = {var for index in out for var in whole.nodes[index].reads} - read  # by anything that is left
        unread |= {var for index in self._dropped for var in whole.nodes[index].reads} - read
        inputs = {var: name for var, name in whole.inputs.items() if var not in unread}
        constants = {var: constant for var, constant in whole.constants.items() if var not in unread}
        there = {*inputs, *constants, *[made for node in nodes for made in node.outs]}
        self.graph = replace(
            whole,
            inputs=inputs,
            constants=constants,
            nodes=nodes,
            types={var: kind for var, kind in whole.types.items() if var in there},
            outputs=outputs,
            labels={var: name for var, name in whole.labels.items() if var in there},
        )

    def _own(self, stage: int) -> list[int]:
        """The nodes of a stage, but for static ones."""
        early = self.division.early[self.number]
        return [index for index in self.division.own_of(self.number, self.division.stages[stage]) if index not in early]

    def _kept(self, out: set[int], instead: Mapping[Var, Var], outputs: set[Var]) -> list[int]:
        """The nodes that are left, in order: without static ones that only what is taken out follows from."""
        nodes = self.whole.nodes
        once = {var for node in nodes for var in node.reads}
        now = set(outputs)
        kept: list[int] = []
        for index in range(len(nodes) - 1, -1, -1):
            node = nodes[index]
            if index in out:
                continue
            if any(made in once for made in node.outs) and now.isdisjoint(node.outs) and self._is_static(node):
                self._dropped.append(index)
                continue
            kept.append(index)
            now.update(instead.get(var, var) for var in node.reads)
        kept.reverse()
        return kept

    def _is_static(self, node: Node) -> bool:
        home = self.division.home[self.number]
        return all(made.id not in home for made in node.outs)

    def places(self, chains: Mapping[int, Chain], like: Mapping[int, int]) -> list[tuple[int, ...]]:
        """The nodes of the whole graph for each that is left: the same, then those like it that were taken out."""
        others: dict[int, list[int]] = {}
        for root, kept in like.items():
            for mine, its in zip(chains[root], chains[kept], strict=True):
                for index, same in zip(self._own(mine), self._own(its), strict=True):
                    others.setdefault(same, []).append(index)
        return [(index, *others.get(index, ())) for index in self.kept]


def _reading(node: Node, instead: Mapping[Var, Var]) -> Node:
    """A call that reads other tensors in the place of some."""
    if not any(var in instead for var in node.reads):
        return node
    kwargs = {name: _read(arg, instead) for name, arg in node.kwargs.items()}
    return replace(node, args=tuple(_read(arg, instead) for arg in node.args), kwargs=kwargs)


def _read(arg: Arg, instead: Mapping[Var, Var]) -> Arg:
    if isinstance(arg, Var):
        return instead.get(arg, arg)
    return tuple(_read(item, instead) for item in arg) if isinstance(arg, tuple) else arg
