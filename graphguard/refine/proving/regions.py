"""Evaluation of a region: the stages of a job that share tensors, in a universe of their own where cut tensors and leaves are unknowns by number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from graphguard.ir import Capture, Leaf, Promise, Var
from graphguard.ir.graph import COLLECTIVES, Node
from graphguard.ir.joining import Joined, JoinedCall, Step
from graphguard.refine.evaluation.evaluate import Evaluator, Values, all_real, shape_of
from graphguard.refine.evaluation.universes import Universes
from graphguard.refine.found.layouts import Layouts
from graphguard.refine.found.promises import Checker
from graphguard.refine.outcome import Location
from graphguard.refine.proving.memo import Result
from graphguard.refine.stages.constants import elements
from graphguard.refine.stages.cuts import Division
from graphguard.refine.stages.spelling import Entered, Number, Speller, Spelt, redrawn
from graphguard.refine.stages.windows import Abstraction, Windowed
from graphguard.relations.terms.kernels import Kernel
from graphguard.relations.terms.values import NormalValue
from graphguard.rules import Trait, kind_of

_NAME = "\0"
_NOTHING = -1


class Failed(Exception):  # noqa: N818 - not everything can be proved piecewise
    """Something of a stage was not proved; the program is to be looked at as a whole."""


class StageRun:
    """One stage, evaluated: the specification's calls, then the ranks' in lockstep, then what holds after them."""

    def __init__(
        self,
        capture: Capture,
        joined: Joined,
        division: Division,
        traits: Mapping[str, Trait],
        speller: Speller,
        state: Universes,
    ) -> None:
        self.capture = capture
        self.joined = joined
        self.division = division
        self.speller = speller
        self.state = state
        self.algebra = state.algebra
        self.universe = state.algebra.universe
        if state.evaluator is None:
            state.evaluator = Evaluator(state.algebra, capture, traits)
        self.evaluator = state.evaluator
        self.evaluator.begin(capture, division.floats)
        self.numbers = speller.numbers()
        self.tables = state.tables(self.numbers)
        for table, numbers, calls in zip(self.tables, self.numbers, division.programs.calls, strict=True):
            table.real = all_real(
                calls.kinds[var][1] for var in numbers
            )  # all that the calls of a stage read and make is spelt

    def run(self, number: int, spelt: Spelt, steps: list[Step]) -> Abstraction | None:
        """Evaluate the calls of a stage (a negative number: of none); gives the specification's tensor of the cut after it."""
        spec = self.division.graphs[0]
        self.universe.specifying = True
        self._enter(spelt, 0)
        for index in self.division.stages[number].nodes[0] if number >= 0 else ():
            self._call(0, index, spec.nodes[index])
        abstraction = None
        if 0 <= number < len(self.division.cuts):
            whole = self.tables[0].get(self.division.cuts[number][0])
            abstraction = None if whole is None else Abstraction(self.universe, whole)
        self.universe.specifying = False
        for graph in range(1, len(self.tables)):
            self._enter(spelt, graph)
        for step in steps:
            self._step(step)
        for table, numbers in zip(self.tables, self.numbers, strict=True):
            for var, value in table.items():
                self.state.values.setdefault(numbers[var.id], value)
        return abstraction

    def _step(self, step: Step) -> None:
        if isinstance(step, JoinedCall):
            for rank, index in step.nodes.items():
                self._ready(rank + 1, self.capture.ranks[rank].nodes[index])
            self.evaluator.collective(step, self.tables[1:])
            return
        rank, index = step
        node = self.capture.ranks[rank].nodes[index]
        if node.op not in COLLECTIVES:
            self._call(rank + 1, index, node)

    def _call(self, graph: int, index: int, node: Node) -> None:
        if not node.outs or node.outs[0].id in self.division.home[graph]:  # static ones come in where they are read
            self._make(graph, index, node)

    def _make(self, graph: int, index: int, node: Node) -> None:
        self._ready(graph, node)
        where = Location(graph - 1, index)
        source = self.division.graphs[graph]
        self.evaluator.node(where, redrawn(node, self.speller.draws), source, self.tables[graph])

    def _ready(self, graph: int, node: Node) -> None:
        """Operands that entered by way of another graph."""
        table, numbers, values = self.tables[graph], self.numbers[graph], self.state.values
        for var in node.operands():
            if var not in table:
                value = values.get(numbers.get(var.id, _NOTHING))
                if value is not None:
                    table[var] = value

    # -- what enters

    def _enter(self, spelt: Spelt, graph: int) -> None:
        for item in spelt.entered:
            if isinstance(item, Entered):
                if item.graph == graph:
                    value = self.evaluator.own(self._entered(item))
                    self.algebra.hold(value, self.division.graphs[graph].types[item.var].dtype)
                    self.state.values[item.number] = self.tables[graph][item.var] = value
            elif item[0] == graph:
                self._make(graph, item[1], self.division.graphs[graph].nodes[item[1]])

    def _entered(self, item: Entered) -> NormalValue:
        graph = self.division.graphs[item.graph]
        if item.leaf is not None:
            return self._leaf(item.number, item.leaf, item.known)
        if item.window is not None:
            return item.window.of(self._unknown(item.whole))
        constant = graph.constants.get(item.var)
        if constant is not None:
            return self.evaluator.constant(constant)
        return self.algebra.leaf(f"#{item.number}", shape_of(graph.types[item.var]), "float")

    def _unknown(self, number: Number) -> Kernel:
        """The kernel of a cut tensor of the specification."""
        pieces = self.state.values[number].pieces
        if len(pieces) != 1 or len(pieces[0][1]) != 1:
            raise Failed("a cut tensor without elements")
        return pieces[0][1][0][1][0]

    def _leaf(self, number: Number, leaf: Leaf, known: tuple[int, int] | None) -> NormalValue:
        if leaf.value is not None and leaf.value.data is not None:
            return self.algebra.literal(elements(leaf.value))
        name = f"#{number}"
        if known is not None:
            self.universe.facts[name] = known
        return self.algebra.leaf(name, shape_of(leaf.type), kind_of(leaf.type.dtype), leaf.low, leaf.high)

    # -- what holds

    def result(self, promises: tuple[Promise, ...], number: int, abstraction: Abstraction | None) -> Result:
        """What holds after the stage, promises among it; raises ``Failed``."""
        held = self.held(promises)
        windows = self._windows(number, self.tables[1:], abstraction)
        return replace(held, windows=windows or (), open=windows is None)

    def held(self, promises: tuple[Promise, ...]) -> Result:
        """That promises hold; raises ``Failed``."""
        if self.universe.needs:
            raise Failed("a part of an index is looked up")
        layouts = Layouts(self.algebra, self.capture)
        specification, *ranks = self.tables
        checker = _RegionChecker(self, specification, ranks, layouts)
        found = []
        for promise in promises:
            self._hold(promise)
            outcome = checker.check(promise)
            if not outcome.holds:
                raise Failed(f"{promise.name}: {outcome.reason or outcome.found}")
            found.append(outcome.found)
        if self.evaluator.narrowing.coarse:
            raise Failed("arithmetic in a narrower type than the specification's")
        return Result((), tuple(found), self._facts(), tuple(sorted(self.universe.assumed)), self.universe.late)

    def _windows(
        self, number: int, ranks: list[Values], abstraction: Abstraction | None
    ) -> tuple[Windowed, ...] | None:
        """The ranks' tensors of the cut after the stage as windows of the specification's; None where one is not known to be."""
        windows = []
        if number < len(self.division.cuts):
            for table, var in zip(ranks, self.division.cuts[number][1:], strict=True):
                value = table.get(var)
                window = None if value is None or abstraction is None else abstraction.window(value)
                if window is None:
                    return None
                windows.append(window)
        return tuple(windows)

    def _hold(self, promise: Promise) -> None:
        """Outputs that entered by way of another graph."""
        for graph, source in enumerate(self.division.graphs):
            var = source.outputs.get(promise.name)
            if var is not None and var not in self.tables[graph]:
                value = self.state.values.get(self.numbers[graph].get(var.id, _NOTHING))
                if value is not None:
                    self.tables[graph][var] = value

    def _facts(self) -> tuple[tuple[int, int, int], ...]:
        out = []
        for name, (low, high) in self.universe.facts.items():
            if not name.startswith("#"):
                raise Failed("a range of what is no leaf")
            out.append((int(name[1:]), low, high))
        return tuple(sorted(out))


class _RegionChecker(Checker):
    """Promises of one region: a layout is followed through the calls that make it, and no others."""

    def __init__(self, run: StageRun, specification: Values, ranks: list[Values], layouts: Layouts) -> None:
        super().__init__(run.capture, run.evaluator, run.joined, specification, ranks, layouts, spoken=_NAME)
        self.run = run

    def _laid_out(self, rank: int, var: Var, name: str, leaf: str) -> NormalValue | None:
        before, _, after = name.rpartition(leaf)
        return self._followed(rank + 1, var, (before, after), Values())

    def _followed(self, graph: int, var: Var, around: tuple[str, str], values: Values) -> NormalValue | None:
        if var in values:
            return values[var]
        source = self.run.division.graphs[graph]
        name = source.inputs.get(var)
        if name is not None:
            value = self._in_place_of(name, *around)
        elif var in source.constants:
            value = self.evaluator.constant(source.constants[var])
        else:
            index = self.run.division.made[graph][var.id]
            node = source.nodes[index]
            if node.phase != "prelude":
                return None
            for operand in node.operands():
                self._followed(graph, operand, around, values)
            self.evaluator.node(Location(graph - 1, index), node, source, values)
            return values.get(var)
        values[var] = value
        return value

    def _in_place_of(self, leaf: str, before: str, after: str) -> NormalValue:
        """The specification's output that takes the place of a leaf; zeros where there is none."""
        assert self.capture.spec is not None
        var = self.capture.spec.outputs.get(before + leaf + after)
        if var is not None:
            value = self.specification.get(var)
            if value is None:
                raise Failed("a layout follows from an output of another region")
            return value
        own = self.run.state.values[self.run.speller.named[leaf]]
        return self._zeros(own.shape) if own.kind == "float" else own
