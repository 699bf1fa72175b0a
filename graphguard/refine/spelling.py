"""A stage of a job as data that is equal for stages that are alike: every tensor, leaf and random draw by number, a graph's calls in columns.

What a stage's result depends on is in its rows: the calls with their literals and result types, the leaves they read (type, declared range, known
range, value), literal tensors by digest, and how each cut tensor that comes in is a window of the specification's.  Names, places in the source and
positions in the program are not.  Two stages with equal rows differ by a renaming, so what is proved of one holds of the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import attrgetter
from typing import Final, TypeAlias

from graphguard.ir import Leaf, Node, Promise, Var
from graphguard.ir.capture import Like
from graphguard.refine.calls import Row, Unspelt
from graphguard.refine.cuts import Division, Stage
from graphguard.refine.windows import Windowed

Number: TypeAlias = tuple[int]  # so that rows tell tensors from literals
Facts: TypeAlias = dict[str, tuple[int, int]]
Windows: TypeAlias = Mapping[tuple[int, int], tuple[Var, Windowed | None]]
_KIND: Final = attrgetter("shape", "dtype")
_UNBOUNDED: Final = (None, None, "", None)


@dataclass(frozen=True, slots=True)
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
    whole: Number = (-1,)


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


class Speller:
    """Numbers the tensors of one region, stage by stage; ``numbers`` has one table a graph."""

    def __init__(self, division: Division, leaves: Mapping[str, Leaf], facts: Facts) -> None:
        self.division = division
        self.leaves = leaves
        self.facts = facts
        self.numbers: list[dict[int, Number]] = [{} for _ in division.graphs]
        self._kinds = division.kinds
        self.named: dict[str, Number] = {}
        self.draws: dict[tuple[str, int], int] = {}
        self.count = 0
        self._spelt = Spelt()
        self._windows: Windows = {}

    def stage(self, stage: Stage, windows: Windows) -> Spelt:
        """The rows of the region's next stage; ``windows`` say of cut tensors made by other regions, by graph and number, what they are windows of.

        Raises ``Unspelt``.
        """
        spelt = self._spelt = Spelt()
        self._windows = windows
        for graph in range(len(stage.nodes)):
            spelt.rows.append(("graph", graph))
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
        division, mine, spelt = self.division, self.numbers[graph], self._spelt
        nodes, calls, kinds = division.graphs[graph].nodes, division.calls[graph], self._kinds[graph]
        early: list[int] = []
        if division.early[graph]:
            own = [index for index in own if not nodes[index].outs or nodes[index].outs[0].id not in mine]
            early = [index for index in own if index in division.early[graph]]
        makes = [out.id for index in own for out in nodes[index].outs]
        end = self.count + len(makes)
        mine.update(zip(makes, zip(range(self.count, end)), strict=True))
        self.count = end
        static: list[int] = []
        for var in [*wanted, *chain.from_iterable(map(calls.reads.__getitem__, own))]:
            if var not in mine:
                self._follow(graph, var, static)
        made = [*own, *static]
        makes += [out.id for index in static for out in nodes[index].outs]
        spelt.rows.append(("calls", len(made), len(makes)))  # what enters follows, and has the numbers after theirs
        reads = list(chain.from_iterable(map(calls.reads.__getitem__, made)))
        for var in reads:
            if var not in mine:
                self._enter(graph, Var(var))
        spelt.entered += [(graph, index) for index in sorted([*static, *early])]
        spelt.calls += len(made)
        spelt.rows.append(("heads",))
        spelt.rows += map(calls.heads.__getitem__, made)
        spelt.rows.append(("reads", *map(mine.__getitem__, reads)))
        spelt.rows.append(("makes", *map(_KIND, map(kinds.__getitem__, makes))))
        drawn = [(place, draw) for place, index in enumerate(own) if (draw := nodes[index].draw) is not None]
        if drawn:
            spelt.rows.append(("draws", *[(place, self._drawn(draw)) for place, draw in drawn]))

    def _follow(self, graph: int, var: int, static: list[int]) -> None:
        """Add the calls to ``static`` from which a static tensor follows, and number what they make; what no call makes is left out."""
        division, mine = self.division, self.numbers[graph]
        index = division.made[graph].get(var)
        if index is None or var in division.home[graph]:
            return
        for read in division.calls[graph].reads[index]:
            if read not in mine:
                self._follow(graph, read, static)
        for out in division.graphs[graph].nodes[index].outs:
            mine[out.id] = (self.count,)
            self.count += 1
        static.append(index)

    def _drawn(self, draw: tuple[str, int]) -> int:
        """The number of a random draw."""
        return self.draws.setdefault(draw, len(self.draws))

    def _enter(self, graph: int, var: Var) -> Number:
        """The number of a tensor that the region has not seen yet."""
        source = self.division.graphs[graph]
        name = source.inputs.get(var)
        if name is not None:
            number = self._leaf(name, graph, var)
        elif var in source.constants:
            constant = source.constants[var]
            number = self._next(("literal", constant.type.shape, constant.type.dtype, constant.digest))
            self._spelt.entered.append(Entered(number, graph, var))
        elif (graph, var.id) in self._windows:
            number = self._cut(graph, var)
        elif var.id in self.division.home[graph]:
            raise Unspelt("a tensor of another region")
        else:
            self._calls(graph, (), (var.id,))
            return self.numbers[graph][var.id]
        self.numbers[graph][var.id] = number
        return number

    def _leaf(self, name: str, graph: int, var: Var) -> Number:
        number = self.named.get(name)
        leaf = self.leaves[name]
        if self._kinds[graph][var.id] != leaf.type:
            raise Unspelt(f"'{name}' has another type here")
        if number is None:
            value = "" if leaf.value is None else leaf.value.digest
            known = self.facts.get(name)
            shape, dtype = leaf.type.shape, leaf.type.dtype
            bounds = (leaf.low, leaf.high, value, known)
            number = self._next(("unknown", shape, dtype) if bounds == _UNBOUNDED else ("leaf", shape, dtype, *bounds))
            self.named[name] = number
            self._spelt.entered.append(Entered(number, graph, var, leaf=leaf, known=known))
        return number

    def _cut(self, graph: int, var: Var) -> Number:
        kind = self.division.graphs[graph].types[var]
        if graph == 0:
            number = self._next(("unknown", kind.shape, kind.dtype))
            self._spelt.entered.append(Entered(number, graph, var))
            return number
        whole, window = self._windows[graph, var.id]
        known = self.numbers[0].get(whole.id)
        if known is None:
            known = self._enter(0, whole)
        assert window is not None
        if kind == self.division.graphs[0].types[whole] and window.is_whole(kind.shape):
            return known
        number = self._next(("window", known, kind.shape, kind.dtype, window.row()))
        self._spelt.entered.append(Entered(number, graph, var, window=window, whole=known))
        return number

    def _next(self, row: Row) -> Number:
        self._spelt.rows.append(row)
        self.count += 1
        return (self.count - 1,)

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
        number = self.numbers[graph].get(var.id)
        return self._enter(graph, var) if number is None else number

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
            row.append((number, None if var is None else self.numbers[0].get(var.id)))
        return row


def redrawn(node: Node, draws: Mapping[tuple[str, int], int]) -> Node:
    """A call whose random draw goes by its number."""
    return node if node.draw is None else replace(node, draw=("draw", draws[node.draw]))
