"""Sites: one tensor of the ranks at one position of all their programs; those that one call makes again and again are a family."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from graphguard.diagnose.localise.layouts import Laid
from graphguard.diagnose.localise.numbers import Numbers, Place
from graphguard.ir import Node, Var
from graphguard.ir.graph import COLLECTIVES
from graphguard.ir.joining import JoinedCall
from graphguard.ops import aten, gg, operators
from graphguard.repair.graph.alignment import Alignment, Position

LEAF = "leaf"
#: Operators that only rearrange, copy or cut; a defect is never in what they compute.
MOVES = operators(lambda op: bool(op.moves)) | {
    aten.detach.default,
    aten.alias.default,
    aten.clone.default,
    aten._to_copy.default,
}


@dataclass(slots=True, eq=False)
class Site:
    """One tensor at one position.  ``states`` are what it is of the specification, ``operands`` and ``readers`` numbers of sites; ``mixed``: what one call reads of several sites."""

    number: int
    tensors: dict[int, Var]
    node: Node
    rank: int
    index: int
    slot: int
    order: int
    live: bool = True
    mixed: bool = False
    states: list[Laid] = field(default_factory=list)
    operands: list[int] = field(default_factory=list)
    readers: list[int] = field(default_factory=list)

    @property
    def is_leaf(self) -> bool:
        """Whether it is given: an input, a literal, or what our own reading of a declaration makes of one."""
        return self.node.op == LEAF or (self.node.phase == "prelude" and self.node.stack < 0)

    @property
    def is_right(self) -> bool:
        """Whether it is a tensor of the specification, of which ranks have every position.  An equal share alone is none: it is one of a tensor n times too small as well."""
        return any(not (state.share or state.lacking) for state in self.states)

    @property
    def computes(self) -> bool:
        """Whether its operator makes new numbers."""
        return not self.is_leaf and self.node.op not in MOVES


class Sites:
    """All sites of a capture, in the order of execution."""

    def __init__(self, numbers: Numbers, alignment: Alignment) -> None:
        self.numbers = numbers
        self.all: list[Site] = []
        self.owner: dict[Place, int] = {}
        self.families: list[list[Site]] = []
        self._alignment = alignment
        self._add_leaves()
        for position in sorted(alignment.positions, key=self._order):
            self._add_position(position)
        self._connect(self._live())
        self._group()

    def __getitem__(self, number: int) -> Site:
        return self.all[number]

    def operands(self, site: Site) -> list[Site]:
        """The sites that one reads."""
        return [self.all[number] for number in site.operands]

    def readers(self, site: Site) -> list[Site]:
        """The sites that read one."""
        return [self.all[number] for number in site.readers]

    def _order(self, position: Position) -> int:
        return min(self.numbers.at.get((rank, index), 0) for rank, index in position.items())

    def _add_leaves(self) -> None:
        leaves: dict[Hashable, dict[int, Var]] = defaultdict(dict)
        for rank, graph in enumerate(self.numbers.capture.ranks):
            for var, name in graph.inputs.items():
                leaves["input", name][rank] = var
            for place, (var, literal) in enumerate(graph.constants.items()):
                leaves["literal", literal.digest, place][rank] = var
        for tensors in leaves.values():
            rank = min(tensors)
            self._add(Site(len(self.all), tensors, Node(LEAF, (), {}, (tensors[rank],)), rank, -1, 0, -1))

    def _add_position(self, position: Position) -> None:
        ranks = self.numbers.capture.ranks
        order = self._order(position)
        outs = {each: ranks[each].nodes[index].outs for each, index in position.items()}
        for slot in range(max(map(len, outs.values()))):
            tensors = {each: vars_[slot] for each, vars_ in outs.items() if slot < len(vars_)}
            first = min(tensors)
            node = ranks[first].nodes[position[first]]
            self._add(Site(len(self.all), tensors, node, first, position[first], slot, order))

    def _add(self, site: Site) -> None:
        self.all.append(site)
        for rank, var in site.tensors.items():
            self.owner[rank, var] = site.number

    def split(self, apart: Mapping[int, str]) -> None:
        """Make sites of their own of what ranks along an axis hold, by number of the site: stages of a pipeline, experts."""
        capture = self.numbers.capture
        for number, axis in apart.items():
            whole = self.all[number]
            groups: dict[int, dict[int, Var]] = defaultdict(dict)
            for rank, var in whole.tensors.items():
                groups[capture.coordinates(rank)[axis]][rank] = var
            for tensors in groups.values():
                rank = min(tensors)
                made = replace(
                    whole, number=len(self.all), tensors=tensors, rank=rank, states=[], operands=[], readers=[]
                )
                if whole.index >= 0:
                    position = self._alignment.positions[self._alignment.number[whole.rank, whole.index]]
                    made.index = position[rank]
                    made.order = min(self.numbers.at.get((each, position[each]), 0) for each in tensors)
                    made.node = capture.ranks[rank].nodes[position[rank]]
                self._add(made)
            whole.tensors = {}
        self.all = sorted((site for site in self.all if site.tensors and not site.mixed), key=lambda site: site.order)
        for number, site in enumerate(self.all):
            site.number = number
            site.operands, site.readers = [], []
        self.owner = {place: site.number for site in self.all for place in site.tensors.items()}
        self._connect(self._live())
        self._group()

    def _connect(self, live: set[Place]) -> None:
        ranks = self.numbers.capture.ranks
        mixed: dict[tuple[Place, ...], Site] = {}
        for site in list(self.all):
            site.live = any(place in live for place in site.tensors.items()) and self.is_known(site)
            if site.index < 0:
                continue
            position = self._alignment.positions[self._alignment.number[site.rank, site.index]]
            reads = {rank: ranks[rank].nodes[position[rank]].reads for rank in site.tensors}
            found = dict.fromkeys(
                self.owner[rank, var] for rank, read in reads.items() for var in read if (rank, var) in self.owner
            )
            if len({len(read) for read in reads.values()}) == 1:
                for row in zip(*reads.values(), strict=True):
                    self._mix(tuple(zip(reads, row, strict=True)), found, mixed)
            if site.node.op == gg.recv:
                found.update(dict.fromkeys(self._sent(site)))
            site.operands = list(found)
            for number in found if site.live else ():
                self.all[number].readers.append(site.number)

    def _mix(self, row: tuple[Place, ...], found: dict[int, None], mixed: dict[tuple[Place, ...], Site]) -> None:
        """What a call reads of several sites, as parts of a split that ranks read crosswise, is a site of its own."""
        parts = {self.owner[place] for place in row if place in self.owner}
        if len(parts) < 2 or any(self.all[number].is_leaf for number in parts):
            return
        if row not in mixed:
            one, rank = self.all[self.owner[row[0]]], row[0][0]  # which need not be the rank of the site itself
            index = self._alignment.positions[self._alignment.number[one.rank, one.index]][rank]
            node = self.numbers.capture.ranks[rank].nodes[index]
            made = Site(
                len(self.all), dict(row), node, rank, index, one.slot,
                max(self.all[number].order for number in parts), mixed=True,
            )  # fmt: skip
            made.operands = list(dict.fromkeys(n for number in parts for n in self.all[number].operands))
            self.all.append(made)
            mixed[row] = made
        for number in parts:
            found.pop(number, None)
        found[mixed[row].number] = None

    def _sent(self, site: Site) -> Iterator[int]:
        step = self.numbers.joined.order[self.numbers.at[site.rank, site.index]]
        if isinstance(step, JoinedCall):
            source = step.group[0]
            node = self.numbers.capture.ranks[source].nodes[step.nodes[source]]
            yield from (self.owner[source, var] for var in node.reads if (source, var) in self.owner)

    def is_known(self, site: Site) -> bool:
        """Whether all its values could be worked out."""
        return all(var in run.ranks[rank] for run in self.numbers.runs for rank, var in site.tensors.items())

    def _live(self) -> set[Place]:
        """Tensors that outputs which fail depend on, through collectives."""
        ranks, live = self.numbers.capture.ranks, set[Place]()
        for rank, graph in enumerate(ranks):
            live.update((rank, graph.outputs[p.name]) for p in self.numbers.failing if p.name in graph.outputs)
        for step in reversed(self.numbers.joined.order):
            members = step.nodes.items() if isinstance(step, JoinedCall) else (step,)
            nodes = [(rank, ranks[rank].nodes[index]) for rank, index in members]
            if any((rank, out) in live for rank, node in nodes for out in node.outs):
                live.update((rank, var) for rank, node in nodes for var in node.reads)
        return live

    def _group(self) -> None:
        families: dict[Hashable, list[Site]] = defaultdict(list)
        for site in self.all:
            if not site.live or site.is_leaf:
                continue
            graph = self.numbers.capture.ranks[site.rank]
            stacks = graph.stack_of(site.node.stack), graph.stack_of(site.node.forward)
            families[site.node.op, site.node.phase, stacks, site.slot, site.mixed].append(site)
        self.families = sorted(families.values(), key=lambda family: family[0].order)

    def live_families(self) -> list[list[Site]]:
        """The families whose values are known, each without those that are not."""
        found = ([site for site in family if site.live] for family in self.families)
        return [family for family in found if family]

    def idle(self, site: Site, depth: int = 6) -> bool:
        """Whether a value rests on no input: zeros, a new buffer, a number.  Nothing of it can be wrong but what is written into it."""
        if site.is_leaf:
            return (
                site.rank >= 0 and next(iter(site.tensors.values())) in self.numbers.capture.ranks[site.rank].constants
            )
        return (
            depth > 0
            and site.node.op not in COLLECTIVES
            and all(self.idle(each, depth - 1) for each in self.operands(site))
        )
