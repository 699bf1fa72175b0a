"""A slice of the program as guesses look at it: which operators are of a kind, who reads whom, and where the frontier is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from graphguard.ir import Capture, Var
from graphguard.ops import aten, gg, operators
from graphguard.repair.graph.edits import Edit, group_of
from graphguard.repair.graph.slices import JOINING, LAYOUT, Site, exposed
from graphguard.rules import kind_of

Guess = tuple[str, Edit, Site, int]
"""A rule, an edit that would be a repair, the site where it applies, and its cost."""

SUMMING = frozenset({gg.all_reduce, gg.reduce_scatter})
SCALING = operators(lambda op: op.symbol in ("*", "/"))
CONTRACTING = operators(lambda op: op.sums)
FILLING = frozenset({aten.slice_scatter.default, aten.select_scatter.default, aten.constant_pad_nd.default})
"""Operators that put a tensor into a larger one: a bucket of gradients, a part that is padded."""
MAXIMA = operators(lambda op: op.reduces == "max")
ANY = operators(lambda op: op.reduces == "any")
MASKING = operators(lambda op: op.mask_at is not None)
LINEAR = LAYOUT | JOINING | CONTRACTING | {aten.add.Tensor, aten.sub.Tensor, aten.mul.Scalar, aten.div.Scalar}
_CARRYING = LAYOUT | JOINING | FILLING | SCALING | {aten.add.Tensor, aten._to_copy.default}
"""Operators behind which a tensor is still there, as a summand or a factor."""
NEAR = 3  # operators between a non-linear one and the reduction that should have come before it


@dataclass(frozen=True, slots=True)
class Neighbours:
    """A slice of the program as guesses look at it: sites by number, who reads whom, and by rank which node makes a tensor.

    ``summed`` has for every site over how many ranks what is made of it is added up by the author's own reductions, those outside autograd.
    """

    capture: Capture
    sites: Mapping[int, Site]
    readers: Mapping[int, tuple[int, ...]]
    exposed: frozenset[int]
    producers: tuple[Mapping[Var, int], ...]
    summed: Mapping[int, frozenset[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, capture: Capture, sites: Mapping[int, Site]) -> Neighbours:
        """The neighbours of a slice."""
        readers: dict[int, list[int]] = {}
        for number, site in sites.items():
            for operand in site.operands:
                readers.setdefault(operand, []).append(number)
        found = {number: tuple(reading) for number, reading in readers.items()}
        producers = tuple(graph.producers() for graph in capture.ranks)
        around = cls(capture, sites, found, exposed(sites, found), producers)
        return replace(around, summed=_summed(around))

    def at_frontier(self, site: Site) -> bool:
        """Whether a site is off the relation though all that it reads is on it, and no tensor on the relation hides it from the outputs."""
        if site.state != "off" or site.number not in self.exposed:
            return False
        return all(operand.state != "off" for operand in self.operands(site))

    def operands(self, site: Site) -> list[Site]:
        """The sites that a site reads."""
        return [self.sites[number] for number in site.operands if number in self.sites]

    def readers_of(self, site: Site) -> list[Site]:
        """The sites that read a site."""
        return [self.sites[number] for number in self.readers.get(site.number, ())]

    def through(
        self, first: Iterable[Site], steps: Callable[[Site], list[Site]], passed: Collection[str]
    ) -> Iterator[Site]:
        """The sites reached from some by steps over operators that are ``passed``, each once, the nearest first: ranks that read of each other make rings."""
        waiting = list(first)
        seen: set[int] = set()
        for site in waiting:
            if site.number not in seen:
                seen.add(site.number)
                yield site
                waiting += steps(site) if site.node.op in passed else []

    def masks(self, site: Site) -> bool:
        """Whether a site multiplies by truths, as numbers or as they are."""
        rank = min(site.position)
        graph, producers = self.capture.ranks[rank], self.producers[rank]
        for var in site.node.operands() if site.node.op == aten.mul.Tensor else ():
            index = producers.get(var)
            cast = index is not None and graph.nodes[index].op == aten._to_copy.default
            read = next(graph.nodes[index].operands()) if cast and index is not None else var
            if graph.types[read].dtype == "bool":
                return True
        return False

    def made(self, site: Site) -> Site:
        """The site whose tensor a site merely moves from rank to rank, or the site itself."""
        while site.node.op == gg.broadcast and (source := self._sent(site)) is not None:
            site = source
        return site

    def _sent(self, site: Site) -> Site | None:
        """The site of the tensor that a broadcast sends."""
        rank = site.node.args[1]
        if not isinstance(rank, int) or rank not in site.position:
            return None
        sent = next(self.capture.ranks[rank].nodes[site.position[rank]].operands(), None)
        return next((each for each in self.operands(site) if sent is not None and each.tensors.get(rank) == sent), None)

    def reductions_behind(self, site: Site, hops: int = 6) -> list[Site]:
        """The sums over ranks that a tensor's value goes into within a few operators, the nearest first."""
        found: list[Site] = []
        edge, seen = {site.number: -1}, {site.number}  # with the place that the value has in a stack
        for _ in range(hops):
            reading = [
                (number, place, self.sites[reader])
                for number, place in edge.items()
                for reader in self.readers.get(number, ())
                if reader not in seen
            ]
            edge = {
                reader.number: self._stacked(number, reader)
                for number, place, reader in reading
                if place < 0 or not _takes_another(reader, place)
            }
            seen.update(edge)
            found.extend(self.sites[number] for number in edge if self.sites[number].node.op in SUMMING)
        return found

    def _stacked(self, number: int, reader: Site) -> int:
        """At which place a site's tensor lies in a stack along the first dim; -1 where there is no such place."""
        parts = reader.node.args[0] if reader.node.op == aten.stack.default and not any(reader.node.args[1:]) else ()
        rank = min(reader.position)
        own = self.sites[number].tensors.get(rank)
        return parts.index(own) if isinstance(parts, tuple) and own is not None and parts.count(own) == 1 else -1

    def added_up(self, site: Site) -> int:
        """Over how many ranks the sum goes that a site outside autograd is a multiple or a part of; 0 where there is none."""
        reading = self.operands(site)
        for _ in range(NEAR if site.node.forward < 0 else 0):
            for each in reading:
                if each.node.op in SUMMING and each.node.args[1] == "sum" and isinstance(each.node.args[2], tuple):
                    return len(each.node.args[2])
            reading = [further for each in reading if each.node.op in LAYOUT for further in self.operands(each)]
        return 0

    def summed_behind(self, site: Site, axis: str) -> bool:
        """Whether an all-reduce over an axis comes soon behind a site."""
        rank = min(site.position)
        group = group_of(self.capture, rank, axis)
        return any(later.node.args[2] == group for later in self.reductions_behind(site, NEAR))

    def _keeps_sums(self, site: Site) -> bool:
        """Whether a site computes the same of a sum as the sum of what it computes of the summands."""
        if site.node.op == aten._to_copy.default:
            rank = min(site.position)
            return kind_of(self.capture.ranks[rank].types[site.tensors[rank]].dtype) == "float"
        return site.node.op in LINEAR | SUMMING | FILLING or scaled(site)

    def reduced_later(self, site: Site, axis: str) -> bool:
        """Whether a reduction over an axis comes behind a tensor itself, which is added to others, multiplied and moved before: as a gradient that is clipped first."""
        rank = min(site.position)
        group = group_of(self.capture, rank, axis)
        reached = self.through(self.readers_of(site), self.readers_of, _CARRYING)
        return any(reader.node.op in SUMMING and reader.node.args[2] == group for reader in reached)

    def reduced_after(self, site: Site, axis: str) -> bool:
        """Whether all that becomes of a tensor, and of what is linear in it, is a reduction over an axis."""
        edge, seen, reduced = {site.number}, {site.number}, False
        while edge:
            readers = [self.sites[number] for each in edge for number in self.readers.get(each, ())]
            if not readers or not all(self._keeps_sums(reader) for reader in readers):
                return False
            for reader in readers:
                if reader.node.op in SUMMING:
                    rank = min(reader.position)
                    if reader.node.args[2] != group_of(self.capture, rank, axis):
                        return False
                    reduced = True
            edge = {reader.number for reader in readers if reader.node.op not in SUMMING} - seen
            seen |= edge
        return reduced


def scaled(site: Site) -> bool:
    """Whether a site multiplies by a number."""
    return site.node.op in SCALING and not isinstance(site.node.args[-1], Var)


def _takes_another(reader: Site, place: int) -> bool:
    """Whether a site takes another row of a stack than that at a place."""
    dim, index = reader.node.args[1:3] if reader.node.op == aten.select.int else (0, place)
    return dim == 0 and isinstance(index, int) and index >= 0 and index != place


def _summed(around: Neighbours) -> dict[int, frozenset[int]]:
    found: dict[int, frozenset[int]] = {}
    for number in sorted(around.sites, reverse=True):
        counts: set[int] = set()
        for reader in around.readers_of(around.sites[number]):
            counts |= found.get(reader.number, frozenset())
            node = reader.node
            if (
                node.op not in SUMMING
                or node.forward >= 0
                or node.args[1] != "sum"
                or not isinstance(node.args[2], tuple)
            ):
                continue
            if not _is_averaged(around, reader, len(node.args[2])):
                counts.add(len(node.args[2]))
        found[number] = frozenset(counts)
    return found


def _is_averaged(around: Neighbours, summed: Site, count: int) -> bool:
    """Whether what is added up over so many ranks is divided by their number, before or after."""
    return any(
        site.node.op in SCALING and any(arg in (count, 1 / count) for arg in site.node.args[1:])
        for steps in (around.readers_of, around.operands)
        for site in around.through(steps(summed), steps, LAYOUT | JOINING | FILLING)
    )
