"""A call that reads one tensor where another one of the same function is meant: each operand in turn is put in the place of another, and numbers say which."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from graphguard.ir import Capture, Node, Var
from graphguard.ir.graph import COLLECTIVES
from graphguard.repair.graph.alignment import Position
from graphguard.repair.graph.edits import SetArgument
from graphguard.repair.graph.slices import LAYOUT, Site, backward_slice
from graphguard.repair.numbers.refuting import Refuter
from graphguard.repair.text.frames import Sources
from graphguard.repair.trying.hypotheses import Hypothesis
from graphguard.repair.trying.search import Search
from graphguard.repair.trying.trials import Repair, made

_MOST: Final = 160  # edits that are looked at on numbers
_PASSES: Final = 8  # of one call, which are edited at once
_COST: Final = 4

Tensors = tuple[dict[int, Var], ...]
"""One tensor a rank for every pass of a call."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of the ranks' programs with all its passes."""

    sites: tuple[Site, ...]
    nodes: tuple[dict[int, Node], ...]

    def operand(self, place: int) -> Tensors | None:
        """What it reads as one argument; None where that is no tensor in some pass."""
        found: list[dict[int, Var]] = []
        for nodes in self.nodes:
            args = {rank: node.args[place] if place < len(node.args) else None for rank, node in nodes.items()}
            tensors = {rank: arg for rank, arg in args.items() if isinstance(arg, Var)}
            if len(tensors) < len(args):
                return None
            found.append(tensors)
        return tuple(found)

    @property
    def results(self) -> Tensors:
        """What it gives, the first of several."""
        return tuple({rank: node.outs[0] for rank, node in nodes.items() if node.outs} for nodes in self.nodes)


def reread(found: Search, sources: Sources) -> Repair | None:
    """The first edit that has one call read another tensor of its function, and that mends every broken result on two draws; None where there is none, or programs are too large for numbers.

    It is not proved.
    """
    capture, proof, trials = found.capture, found.proof, found.trials
    again = Refuter.of(capture, 1)
    if trials.refuter is None or again is None or not trials.refuter.point.small:
        return None
    wanted = tuple(name for name in found.left if not name.startswith("grad(")) or found.left
    sites = backward_slice(capture, proof, trials.alignment, found.left)
    for guess in itertools.islice(_guesses(capture, sites, sources), _MOST):
        edited = made(guess, capture)
        if edited is not None and all(_mends(refuter, edited, wanted) for refuter in (trials.refuter, again)):
            return Repair(guess, wanted, capture, edited, proof, sites)
    return None


def _mends(refuter: Refuter, edited: Capture, wanted: Sequence[str]) -> bool:
    changed = refuter.point.changed(edited)
    return changed is not None and not refuter.refuted(changed, wanted) and not changed.unknown


def _guesses(capture: Capture, sites: Mapping[int, Site], sources: Sources) -> Iterator[Hypothesis]:
    """The edits, those first of calls that read one tensor twice."""
    functions: dict[Hashable, list[_Call]] = defaultdict(list)
    for call in _calls(capture, sites):
        graph = capture.ranks[min(call.sites[0].position)]
        frame = next(iter(sources.frames(graph, call.sites[0].node)), None)
        if frame is not None:
            functions[frame.span.file, frame.function].append(call)
    doubtful = [
        (call, place, others)
        for others in functions.values()
        for call in others
        if (call.sites[0].state == "off" or _reads_twice(call)) and call.sites[0].node.op not in LAYOUT | COLLECTIVES
        for place, arg in enumerate(call.sites[0].node.args)
        if isinstance(arg, Var)
    ]
    for call, place, others in sorted(doubtful, key=lambda each: not _reads_twice(each[0])):
        yield from _rereadings(capture, call, place, others)


def _calls(capture: Capture, sites: Mapping[int, Site]) -> list[_Call]:
    groups: dict[Hashable, list[Site]] = defaultdict(list)
    for site in sites.values():
        if site.node.phase == "forward" and site.tensors:
            graph = capture.ranks[min(site.position)]
            groups[site.node.op, graph.stack_of(site.node.stack)].append(site)
    return [
        _Call(tuple(group), tuple(_nodes(capture, site.position) for site in group))
        for group in groups.values()
        if len(group) <= _PASSES
    ]


def _nodes(capture: Capture, position: Position) -> dict[int, Node]:
    return {rank: capture.ranks[rank].nodes[index] for rank, index in position.items()}


def _reads_twice(call: _Call) -> bool:
    reads = call.sites[0].node.reads
    return len(set(reads)) < len(reads)


def _rereadings(capture: Capture, call: _Call, place: int, others: Sequence[_Call]) -> Iterator[Hypothesis]:
    """One operand in the place of which every other tensor of the function is put that fits and is there by then."""
    now = call.operand(place)
    seen = [now]
    for other in others:
        if len(other.sites) != len(call.sites):
            continue
        width = len(other.sites[0].node.args)
        for meant in (other.results, *(other.operand(each) for each in range(width))):
            if now is None or meant is None or meant in seen or not _fits(capture, call, now, meant):
                continue
            seen.append(meant)
            edits = [
                SetArgument(site.position, place, dict(tensors), "operand")
                for site, tensors in zip(call.sites, meant, strict=True)
            ]
            yield Hypothesis("wrong-relation", edits[0], call.sites[0], _COST, tuple(edits[1:]))


def _fits(capture: Capture, call: _Call, now: Tensors, meant: Tensors) -> bool:
    for site, mine, its in zip(call.sites, now, meant, strict=True):
        for rank, index in site.position.items():
            graph = capture.ranks[rank]
            var = its.get(rank)
            if var is None or graph.types[var] != graph.types[mine[rank]]:
                return False
            if graph.producers().get(var, -1) >= index:
                return False
    return True
