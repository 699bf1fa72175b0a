"""A stage of a job as data that is equal for stages that are alike: every tensor, leaf and random draw by number, a graph's calls in columns.

What a stage's result depends on is in its rows: the calls with their literals and result types, the leaves they read (type, declared range, known
range, value), literal tensors by digest, and how each cut tensor that comes in is a window of the specification's.  Names, places in the source and
positions in the program are not.  Two stages with equal rows differ by a renaming, so what is proved of one holds of the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from graphguard.ir import Leaf, Node, Promise, Var
from graphguard.ir.capture import Like
from graphguard.refine.stages.calls import Row, Unspelt
from graphguard.refine.stages.cuts import Division, Stage
from graphguard.refine.stages.windows import Windowed

Number: TypeAlias = int
Facts: TypeAlias = dict[str, tuple[int, int]]
Windows: TypeAlias = Mapping[tuple[int, int], tuple[Var, Windowed | None]]
_UNBOUNDED: Final = (None, None, "", None)


@dataclass(slots=True)
class Entered:
    """Something a stage reads that none of its calls makes: a leaf, a literal or a cut tensor, by number; ``var`` is a tensor of ``graph``.

    ``known`` is what was known of a leaf's range then; ``whole`` the number of the tensor that ``window`` is of.
    """

    number: Number
    graph: int
    var: Var
    leaf: Leaf | None = None
    known: tuple[int, int] | None = None
    window: Windowed | None = None
    whole: Number = -1


@dataclass(slots=True)
class Spelt:
    """One stage: its rows; what enters and which static calls (graph, node) are made again, in order; and how many calls it has in all."""

    rows: list[Row] = field(default_factory=list)
    entered: list[Entered | tuple[int, int]] = field(default_factory=list)
    calls: int = 0

    def add(self, other: Spelt) -> None:
        """Take in what was spelt after this."""
        self.rows += other.rows
        self.entered += other.entered
        self.calls += other.calls


@dataclass(slots=True)
class Twin:
    """The numbers of a graph that is spelt together with another: those of the other, but for what calls make, which are moved, and for cut tensors."""

    first: dict[int, Number]
    moved: list[tuple[Number, Number, int]] = field(default_factory=list)
    own: dict[int, Number] = field(default_factory=dict)

    def number(self, var: int) -> Number | None:
        """The number of a tensor; None where the region has not seen it."""
        known = self.own.get(var)
        if known is not None:
            return known
        number = self.first.get(var)
        if number is not None:
            for start, end, by in self.moved:
                if start <= number < end:
                    return number + by
        return number

    def numbers(self) -> dict[int, Number]:
        """The numbers of all tensors."""
        table = dict(self.first)
        for start, end, by in self.moved:
            table.update({var: number + by for var, number in self.first.items() if start <= number < end})
        return {**table, **self.own}


class Speller:
    """Numbers the tensors of one region, stage by stage.

    Graphs that are twins are spelt together: the first as it is, of the others only what differs.
    """

    def __init__(self, division: Division, leaves: Mapping[str, Leaf], facts: Facts) -> None:
        self.division = division
        self.leaves = leaves
        self.facts = facts
        self.named: dict[str, Number] = {}
        self.draws: dict[tuple[str, int], int] = {}
        self.count = 0
        self._numbers: dict[int, dict[int, Number]] = {graph: {} for graph in division.programs.twins}
        self._first = {twin: first for first, twins in division.programs.twins.items() for twin in twins}
        self._twins = {twin: Twin(self._numbers[first]) for twin, first in self._first.items()}
        self._entered: dict[tuple[int, Number], int] = {}  # cut tensors
        self._spelt = Spelt()
        self._windows: Windows = {}

    def number(self, graph: int, var: int) -> Number | None:
        """The number of a tensor; None where the region has not seen it."""
        twin = self._twins.get(graph)
        return self._numbers[graph].get(var) if twin is None else twin.number(var)

    def numbers(self) -> list[dict[int, Number]]:
        """The numbers of all tensors, by graph."""
        tables = {**self._numbers, **{graph: twin.numbers() for graph, twin in self._twins.items()}}
        return [tables[graph] for graph in range(len(tables))]

    def stage(self, stage: Stage, windows: Windows) -> Spelt:
        """The rows of the region's next stage; ``windows`` say of cut tensors made by other regions, by graph and number, what they are windows of.

        Raises ``Unspelt``.
        """
        spelt = self._spelt = Spelt()
        self._windows = windows
        for graph, twins in self.division.programs.twins.items():
            spelt.rows.append(("graph", graph, *twins))
            self._calls(graph, self.division.own_of(graph, stage))
        return spelt

    def promised(self, stage: Stage) -> tuple[Spelt, bool]:
        """The rows of what is promised of the stage spelt last; and whether that speaks of what the region had not seen before."""
        spelt, count = Spelt(), self.count
        self._spelt = spelt
        for promise in stage.promises:
            self._promise(promise)
        return spelt, self.count > count

    def static(self, tensors: list[list[Var]]) -> Spelt:
        """A stage of nothing but static tensors, by graph."""
        spelt = self._spelt = Spelt()
        for graph, mine in enumerate(tensors):
            for var in mine:
                self.known(graph, var)
        return spelt

    def _calls(self, graph: int, own: Sequence[int], wanted: Sequence[int] = ()) -> None:
        """Spell calls, with the static ones that they or the tensors ``wanted`` follow from: what each says, then what all of them read and make."""
        division, mine, spelt, first = self.division, self._numbers[graph], self._spelt, self.count
        nodes, calls = division.graphs[graph].nodes, division.programs.calls[graph]
        early: list[int] = []
        if division.early[graph]:
            own = [index for index in own if not nodes[index].outs or nodes[index].outs[0].id not in mine]
            early = [index for index in own if index in division.early[graph]]
        makes = [out.id for index in own for out in nodes[index].outs]
        self.count += len(makes)
        mine.update(zip(makes, range(first, self.count), strict=True))
        reads = [var for index in own for var in calls.reads[index]]
        entering = dict.fromkeys([*wanted, *[var for var in reads if var not in mine]])
        static: list[int] = []
        for var in entering:
            if var not in mine:
                self._follow(graph, var, static)
        if static:
            own = [*own, *static]
            makes += [out.id for index in static for out in nodes[index].outs]
            behind = [var for index in static for var in calls.reads[index]]
            entering.update(dict.fromkeys(behind))
            reads += behind
        twins = self._move_twins(graph, first)
        spelt.calls += len(own) * (1 + len(twins))
        spelt.rows.append(("calls", len(own), len(makes)))  # what enters follows, and has the numbers after theirs
        for var in entering:
            if var not in mine:
                self._enter(graph, var)
        again = sorted([*static, *early])
        spelt.entered += [(graph, index) for index in again]
        spelt.rows.append(("heads",))
        spelt.rows += map(calls.heads.__getitem__, own)
        spelt.rows.append(("reads", *map(mine.__getitem__, reads)))
        spelt.rows.append(("makes", *map(calls.kinds.__getitem__, makes)))
        if calls.draws:
            drawn = [(place, draw) for place, index in enumerate(own) if (draw := nodes[index].draw) is not None]
            spelt.rows.append(("draws", *[(place, self._drawn(draw)) for place, draw in drawn]))
        for twin in twins:
            unlike = division.programs.unlike[twin]
            other = [(place, unlike[index]) for place, index in enumerate(own) if index in unlike] if unlike else ()
            spelt.rows.append(("twin", twin, *other))
            spelt.entered += [(twin, index) for index in again]

    def _follow(self, graph: int, var: int, static: list[int]) -> None:
        """Add the calls to ``static`` from which a static tensor follows, and number what they make; what no call makes is left out."""
        division, mine = self.division, self._numbers[graph]
        index = division.made[graph].get(var)
        if index is None or var in division.home[graph]:
            return
        for read in division.programs.calls[graph].reads[index]:
            if read not in mine:
                self._follow(graph, read, static)
        for out in division.graphs[graph].nodes[index].outs:
            mine[out.id] = self.count
            self.count += 1
        static.append(index)

    def _move_twins(self, graph: int, first: int) -> list[int]:
        """Number what the twins of a graph make as it numbered its own from ``first`` on."""
        twins, end = self.division.programs.twins[graph], self.count
        for twin in twins:
            self._twins[twin].moved.append((first, end, self.count - first))
            self.count += end - first
        return twins

    def _drawn(self, draw: tuple[str, int]) -> int:
        """The number of a random draw."""
        return self.draws.setdefault(draw, len(self.draws))

    def _enter(self, graph: int, var: int) -> None:
        """Number a tensor that the region has not seen yet, of a graph and of its twins."""
        division, mine = self.division, self._numbers[graph]
        name = division.programs.calls[graph].leaves.get(var)
        if name is not None:
            mine[var] = self._leaf(name, graph, var)
        elif var in division.programs.calls[graph].literals:
            constant = division.graphs[graph].constants[Var(var)]
            mine[var] = number = self._next(("literal", constant.type.shape, constant.type.dtype, constant.digest))
            self._spelt.entered.append(Entered(number, graph, Var(var)))
        elif (graph, var) in self._windows:
            mine[var] = self._cut(graph, var)
            self._instead(graph, var)
        elif var in division.home[graph]:
            raise Unspelt("a tensor of another region")
        else:
            self._calls(graph, (), (var,))

    def _leaf(self, name: str, graph: int, var: int) -> Number:
        number = self.named.get(name)
        leaf = self.leaves[name]
        kind = leaf.type.shape, leaf.type.dtype
        if self.division.programs.calls[graph].kinds[var] != kind:
            raise Unspelt(f"'{name}' has another type here")
        if number is None:
            value = "" if leaf.value is None else leaf.value.digest
            known = self.facts.get(name)
            bounds = (leaf.low, leaf.high, value, known)
            number = self._next(("unknown", *kind) if bounds == _UNBOUNDED else ("leaf", *kind, *bounds))
            self.named[name] = number
            self._spelt.entered.append(Entered(number, graph, Var(var), leaf=leaf, known=known))
        return number

    def _cut(self, graph: int, var: int) -> Number:
        kinds = self.division.programs.calls
        kind = kinds[graph].kinds[var]
        if graph == 0:
            number = self._next(("unknown", *kind))
            self._spelt.entered.append(Entered(number, graph, Var(var)))
            return number
        whole, window = self._windows[graph, var]
        known = self.known(0, whole)
        assert window is not None
        if kind == kinds[0].kinds[whole.id] and window.is_whole(kind[0]):
            return known
        number = self._next(("window", known, *kind, window.row()))
        self._spelt.entered.append(Entered(number, graph, Var(var), window=window, whole=known))
        return number

    def _instead(self, graph: int, var: int) -> None:
        """Number a cut tensor of twins: what they have in the place of the number that it has in the first of them."""
        number = self._numbers[graph][var]
        if self._entered.setdefault((graph, number), var) != var:
            raise Unspelt("two cut tensors are one")
        for twin in self.division.programs.twins[graph]:
            own = self._cut(twin, var)
            if own != number:
                self._twins[twin].own[var] = own
                self._spelt.rows.append(("instead", twin, number, own))

    def _next(self, row: Row) -> Number:
        self._spelt.rows.append(row)
        self.count += 1
        return self.count - 1

    # -- promises

    def _promise(self, promise: Promise) -> None:
        graphs = self.division.graphs
        row: list[object] = ["promise"]
        for graph, source in enumerate(graphs):
            var = source.outputs.get(promise.name)
            row.append(None if var is None else self.known(graph, var))
        wanted = promise.wanted
        if isinstance(wanted, Like):
            row += ["like", *self._like(promise.name, wanted.leaf)]
        elif isinstance(wanted, dict):
            row += [(axis, place.kind, place.dim, place.reduce) for axis, place in wanted.items()]
        else:
            row.append(wanted)
        self._spelt.rows.append(tuple(row))

    def known(self, graph: int, var: Var) -> Number:
        """The number of a tensor, which enters where the region has not seen it."""
        number = self.number(graph, var.id)
        if number is None:
            self._enter(self._first.get(graph, graph), var.id)
            number = self.number(graph, var.id)
            assert number is not None
        return number

    def _like(self, name: str, leaf: str) -> list[object]:
        """The ranks' tensors of the leaf's name, and for every leaf that they follow from the specification's output that takes its place."""
        before, _, after = name.rpartition(leaf)
        row: list[object] = []
        for graph in range(1, len(self.division.graphs)):
            own = self.division.labelled[graph - 1].get(leaf)
            row.append(None if own is None else self.known(graph, own))
        outputs = self.division.graphs[0].outputs
        for known, number in self.named.items():
            var = outputs.get(before + known + after)
            row.append((number, None if var is None else self._numbers[0].get(var.id)))
        return row


def redrawn(node: Node, draws: Mapping[tuple[str, int], int]) -> Node:
    """A call whose random draw goes by its number."""
    return node if node.draw is None else replace(node, draw=("draw", draws[node.draw]))
