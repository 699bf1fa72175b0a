"""A stage of a job as data that is equal for stages that are alike: every tensor, leaf and random draw by number in order of first use.

What a stage's result depends on is in its rows: the calls with their literals and result types, the leaves they read (type, declared range, known
range, value), literal tensors by digest, and how each cut tensor that comes in is a window of the specification's.  Names, places in the source and
positions in the program are not.  Two stages with equal rows differ by a renaming, so what is proved of one holds of the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from graphguard.ir import Leaf, Node, Promise, Var
from graphguard.ir.capture import Like
from graphguard.ir.graph import Arg, DType
from graphguard.refine.cuts import Division, Stage
from graphguard.refine.windows import Windowed

Row: TypeAlias = tuple[object, ...]  # of strings, integers, None and rows
Number: TypeAlias = tuple[int]  # so that rows tell tensors from literals
Facts: TypeAlias = dict[str, tuple[int, int]]
Windows: TypeAlias = Mapping[tuple[int, int], tuple[Var, Windowed | None]]
_UNBOUNDED: Final = (None, None, "", None)


class Unspelt(Exception):  # noqa: N818 - a program that cannot be taken apart, to be proved as a whole
    """A tensor of another region is read that is no cut."""


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
        for graph, mine in enumerate(stage.nodes):
            nodes, home, early = (
                self.division.graphs[graph].nodes,
                self.division.home[graph],
                self.division.early[graph],
            )
            spelt.rows.append(("graph", graph))
            for index in mine:
                node = nodes[index]
                if not node.outs or node.outs[0].id in home:
                    self._call(graph, node)
                elif index in early:  # other static ones come in where they are read
                    self._static(graph, index)
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

    def _call(self, graph: int, node: Node) -> None:
        mine = self.numbers[graph]
        outs = node.outs
        if outs and outs[0].id in mine:
            return  # a static call that was made earlier
        row: list[object] = [node.op, len(node.args)]
        add = row.append
        for arg in node.args:
            if arg.__class__ is Var:
                add(mine.get(arg.id) or self._enter(graph, arg))
            elif arg.__class__ is int or arg.__class__ is str:
                add(arg)
            else:
                add(self._code(arg, graph, mine))
        if node.kwargs:
            add("kwargs")
            add(len(node.kwargs))
            for name, value in node.kwargs.items():
                add(name)
                add(self._code(value, graph, mine))
        if node.draw is not None:
            add(("draw", self.draws.setdefault(node.draw, len(self.draws))))
        kinds = self._kinds[graph]
        count = self.count
        for out in outs:
            number = out.id
            of = kinds[number]
            add(of.shape)
            add(of.dtype)
            mine[number] = (count,)
            count += 1
        self.count = count
        spelt = self._spelt
        spelt.calls += 1
        spelt.rows.append(tuple(row))

    def _code(self, arg: Arg, graph: int, mine: dict[int, Number]) -> object:
        if isinstance(arg, tuple):
            return ("(", *[item if item.__class__ is int else self._code(item, graph, mine) for item in arg])
        if isinstance(arg, Var):
            return mine.get(arg.id) or self._enter(graph, arg)
        if isinstance(arg, bool):
            return ("bool", int(arg))
        if arg is None or isinstance(arg, int | str):
            return arg
        if isinstance(arg, DType):
            return ("dtype", arg.name)
        if isinstance(arg, float):
            return ("float", arg.hex())
        raise Unspelt(repr(arg))

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
            self._static(graph, self.division.made[graph][var.id])
            return self.numbers[graph][var.id]
        self.numbers[graph][var.id] = number
        return number

    def _static(self, graph: int, index: int) -> None:
        node = self.division.graphs[graph].nodes[index]
        if node.outs[0].id not in self.numbers[graph]:
            self._call(graph, node)
            self._spelt.entered.append((graph, index))

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
