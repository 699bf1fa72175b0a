"""Both programs at one point: what numbers refute of an edited program, no proof confirms.

A leaf is an array drawn at random, a call gives what its rule says of numbers, and what stays closed in a proof is a fixed function of its operands here as well:
a proof holds for every such function.  An edited program is run again only where it differs, as far as it is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from graphguard.confirm.fields.closed_numbers import ClosedNumbers, generator
from graphguard.confirm.fields.point_run import PointRun, RuleFailedError
from graphguard.confirm.run.ranges import IndexRange, index_ranges
from graphguard.ir import Capture, Constant, Graph, Leaf, Node, Var
from graphguard.ir.fuel import burn
from graphguard.ir.graph import COLLECTIVES
from graphguard.ir.joining import Joined, JoinedCall, Step, join
from graphguard.refine.evaluation.evaluate import shape_of
from graphguard.refine.stages.constants import elements
from graphguard.relations.algebra import Kind, Unsupported
from graphguard.relations.numbers import Array, Number, Numbers
from graphguard.rules import kind_of, parse_traits
from graphguard.rules.basis.registry import is_complex

_ELEMENTS = 1 << 16  # of one tensor: a larger program is quicker to prove than to run
_TOTAL = 1 << 23  # of all tensors, which are kept: 64 MB
_COMPUTED = 1 << 12  # elements in the time of a step
_SMALL = 1 << 15  # of all tensors: what becomes of every edit of such a program can be kept


class _Held(dict[Var, Number]):
    """The values of a rank that an edit changes, and behind them those of before."""

    def __init__(self, before: Mapping[Var, Number]) -> None:
        self.before = before

    def __missing__(self, var: Var) -> Number:
        return self.before[var]


@dataclass(slots=True)
class Changed:
    """What an edit makes of the ranks: new values, and by rank the variables whose value is another one or not known.

    ``steps`` are those that the edit may change, in order; ``fits`` says whether every call that was asked for could be made of its operands, ``done`` are the steps that were.
    ``forced`` are values that were put in the place of what calls give.
    """

    edited: Capture
    joined: Joined
    held: list[_Held]
    moved: list[set[Var]]
    steps: list[int]
    fits: bool = True
    done: set[int] = field(default_factory=set)
    forced: frozenset[tuple[int, Var]] = frozenset()

    def value(self, rank: int, var: Var) -> Number | None:
        """A rank's value; None where it is not known."""
        mine = self.held[rank].get(var)
        return mine if mine is not None or var in self.moved[rank] else self.held[rank].before.get(var)

    @property
    def unknown(self) -> bool:
        """Whether some value that the edit changes is not known."""
        return any(var not in held for held, moved in zip(self.held, self.moved, strict=True) for var in moved)


@dataclass(slots=True)
class Point:
    """The values of both programs at one point; those that could not be worked out are absent."""

    capture: Capture
    run: PointRun[Number]
    leaves: Mapping[str, Number]
    spec: Mapping[Var, Number]
    ranks: list[dict[Var, Number]]
    calls: tuple[frozenset[int], ...] = ()
    small: bool = False

    @classmethod
    def of(cls, capture: Capture, turn: int = 0) -> Point | None:
        """Run both programs on the draw of a ``turn``; None where that is not worth while, or not possible."""
        largest, total = _extents(capture)
        if capture.spec is None or largest > _ELEMENTS or total > _TOTAL:
            return None
        run = PointRun(ClosedNumbers(), parse_traits(capture.traits), is_real(capture))
        try:
            leaves = _drawn(capture, turn)
            for leaf in capture.leaves:
                run.algebra.hold(leaves[leaf.name], leaf.type.dtype)
            spec = _started(capture.spec, leaves)
        except Unsupported:
            return None
        with np.errstate(all="ignore"):
            _advance(run, capture.spec, range(len(capture.spec.nodes)), spec)
            try:
                ranks = _ran(run, capture.ranks, leaves)
            except Unsupported:
                return None
        calls = tuple(frozenset(map(id, graph.nodes)) for graph in capture.ranks)
        return cls(capture, run, leaves, spec, ranks, calls, total <= _SMALL)

    def elsewhere(self, leaves: Mapping[str, Number]) -> tuple[Mapping[Var, Number], list[dict[Var, Number]]]:
        """The values of the specification and of the ranks where some leaves have other ones; what does not rest on these is not run again."""
        assert self.capture.spec is not None
        (spec,) = self._again((self.capture.spec,), [self.spec], leaves)
        return spec, self._again(self.capture.ranks, self.ranks, leaves)

    def _again(
        self, graphs: tuple[Graph, ...], before: Sequence[Mapping[Var, Number]], leaves: Mapping[str, Number]
    ) -> list[dict[Var, Number]]:
        order = join(graphs).order
        moved = [{var for var, name in graph.inputs.items() if name in leaves} for graph in graphs]
        steps = self._touched(graphs, order, moved, tuple(frozenset(map(id, graph.nodes)) for graph in graphs))
        values = [
            {var: value for var, value in held.items() if var not in away}
            | {var: leaves[name] for var, name in graph.inputs.items() if name in leaves}
            for graph, held, away in zip(graphs, before, moved, strict=True)
        ]
        with np.errstate(all="ignore"):
            _run(self.run, graphs, [order[number] for number in steps], values)
        return values

    def preludes(self, leaves: Mapping[str, Number]) -> list[dict[Var, Number]]:
        """What the ranks' preludes make of other values of the leaves."""
        with np.errstate(all="ignore"):
            return _ran(self.run, self.capture.ranks, leaves, "prelude")

    def after(self, changed: Changed) -> Point:
        """The point of an edited program whose changes were all worked out."""
        edited = changed.edited
        ranks = [
            {**{var: value for var, value in held.before.items() if var not in moved}, **held}
            for held, moved in zip(changed.held, changed.moved, strict=True)
        ]
        calls = tuple(frozenset(map(id, graph.nodes)) for graph in edited.ranks)
        return Point(edited, self.run, self.leaves, self.spec, ranks, calls, self.small)

    def changed(self, edited: Capture) -> Changed | None:
        """What an edit changes before any call; None where it hangs, or has a literal without numbers."""
        joined = join(edited.ranks)
        if joined.mismatches:
            return None
        steps = self._touched(edited.ranks, joined.order, [set() for _ in edited.ranks], self.calls)
        changed = Changed(
            edited, joined, [_Held(values) for values in self.ranks], [set() for _ in edited.ranks], steps
        )
        for rank, graph in enumerate(edited.ranks):
            for var, constant in graph.constants.items():
                if var not in self.ranks[rank]:
                    try:
                        changed.held[rank][var] = _literal(constant)
                    except Unsupported:
                        return None
                    changed.moved[rank].add(var)
        return changed

    def intervened(self, forced: Mapping[tuple[int, Var], Number]) -> Changed:
        """The program itself with other values in the place of what some calls give."""
        graphs = self.capture.ranks
        given: list[set[Var]] = [set() for _ in graphs]
        held = [_Held(values) for values in self.ranks]
        for (rank, var), value in forced.items():
            given[rank].add(var)
            held[rank][var] = value
        moved = [set(each) for each in given]
        joined = join(graphs)
        steps = self._touched(graphs, joined.order, given, self.calls)
        return Changed(self.capture, joined, held, moved, steps, forced=frozenset(forced))

    def towards(self, changed: Changed, outputs: Mapping[str, Collection[int]]) -> Iterator[str]:
        """Work out what some outputs rest on, each on some ranks, and give the name of each as soon as it is known."""
        graphs = changed.edited.ranks
        ends = dict.fromkeys(outputs, -1)  # the step after which it is known
        names: dict[tuple[int, Var], list[str]] = {}
        for name, asked in outputs.items():
            for rank in asked:
                names.setdefault((rank, graphs[rank].outputs[name]), []).append(name)
        wanted = [{var for holder, var in names if holder == rank} for rank in range(len(graphs))]
        steps: list[int] = []
        for number in reversed(changed.steps):
            members = _members(changed.joined.order[number])
            for rank, index in members:
                if not wanted[rank].isdisjoint(graphs[rank].nodes[index].outs):
                    steps.append(number)
                    for other, place in members:
                        wanted[other].update(graphs[other].nodes[place].reads)
                    break
        for number in steps:
            for rank, index in _members(changed.joined.order[number]):
                for out in graphs[rank].nodes[index].outs:
                    for name in names.get((rank, out), ()):
                        ends[name] = max(number, ends[name])
        for name in sorted(ends, key=ends.__getitem__):
            upto: list[int] = []
            while steps and steps[-1] <= ends[name]:
                upto.append(steps.pop())
            self._steps(changed, upto)
            yield name

    def all(self, changed: Changed) -> None:
        """Work out everything."""
        self._steps(changed, changed.steps)

    def _touched(
        self,
        graphs: Sequence[Graph],
        order: Sequence[Step],
        given: Sequence[set[Var]],
        calls: Sequence[frozenset[int]],
    ) -> list[int]:
        """The numbers of the steps that make a call that is not among ``calls``, or read what is ``given``; what they give is added to it."""
        found: list[int] = []
        for number, step in enumerate(order):
            for rank, index in _members(step):
                node = graphs[rank].nodes[index]
                if id(node) not in calls[rank] or not given[rank].isdisjoint(node.reads):
                    found.append(number)
                    for other, place in _members(step):
                        given[other].update(graphs[other].nodes[place].outs)
                    break
        return found

    def _steps(self, changed: Changed, numbers: Iterable[int]) -> None:
        graphs, moved = changed.edited.ranks, changed.moved
        with np.errstate(all="ignore"):
            for number in numbers:
                if number in changed.done:
                    continue
                changed.done.add(number)
                step = changed.joined.order[number]
                for rank, index in _members(step):
                    node = graphs[rank].nodes[index]
                    if id(node) not in self.calls[rank] or not moved[rank].isdisjoint(node.reads):
                        self._call(changed, step)
                        break
                if not changed.fits:
                    return

    def _call(self, changed: Changed, step: Step) -> None:
        """Make a call that is new, or of other operands than before."""
        graphs = changed.edited.ranks
        nodes = {rank: graphs[rank].nodes[index] for rank, index in _members(step)}
        known = all(changed.value(rank, var) is not None for rank, node in nodes.items() for var in node.reads)
        results: Mapping[int, Sequence[Number]] = {}
        try:
            results = _results(self.run, step, graphs, changed.held) if known else {}
        except RuleFailedError:
            # a rule that has no numbers for it before either says nothing of an edit
            changed.fits = any(
                out not in self.ranks[rank]
                for rank, node in nodes.items()
                if id(node) in self.calls[rank]
                for out in node.outs
            )
        burn(sum(value.array.size for found in results.values() for value in found) // _COMPUTED)
        for rank, node in nodes.items():
            self._keep(changed, rank, node, results.get(rank, ()))

    def _keep(self, changed: Changed, rank: int, node: Node, results: Sequence[Number]) -> None:
        """Note what a call gives now where it gave something else."""
        for place, out in enumerate(node.outs):
            if (rank, out) in changed.forced:
                continue
            value = results[place] if place < len(results) else None
            before = self.ranks[rank].get(out)
            if value is None:
                changed.moved[rank].add(out)
            elif before is None or not _identical(before.array, value.array):
                changed.moved[rank].add(out)
                changed.held[rank][out] = value


def is_real(capture: Capture) -> bool:
    """Whether no tensor of any program is complex."""
    return not any(is_complex(kind.dtype) for graph in capture.graphs for kind in graph.types.values())


def _members(step: Step) -> Collection[tuple[int, int]]:
    return step.nodes.items() if isinstance(step, JoinedCall) else (step,)


def _results(
    run: PointRun[Number], step: Step, graphs: Sequence[Graph], values: Sequence[Mapping[Var, Number]]
) -> Mapping[int, Sequence[Number]]:
    """What a step gives every rank that takes part in it, from operands that are known; nothing where it has no numbers.  Raises ``RuleFailedError``."""
    try:
        if isinstance(step, JoinedCall):
            return run.exchange(step, graphs, values)
        rank, index = step
        node = graphs[rank].nodes[index]
        if node.op in COLLECTIVES or node.op in run.traits:
            return {}
        return {rank: run.results(node, graphs[rank], values[rank])}
    except RuleFailedError:
        raise
    except (Unsupported, LookupError, TypeError, ValueError, AssertionError):
        return {}


def _ran(
    run: PointRun[Number], graphs: tuple[Graph, ...], leaves: Mapping[str, Number], phase: str = ""
) -> list[dict[Var, Number]]:
    """The values of all ranks, or of one phase alone."""
    values = [_started(graph, leaves) for graph in graphs]
    _run(run, graphs, join(graphs).order, values, phase)
    return values


def _run(
    run: PointRun[Number],
    graphs: tuple[Graph, ...],
    steps: Iterable[Step],
    values: list[dict[Var, Number]],
    phase: str = "",
) -> None:
    """Add to the values what some steps give, or those of one phase alone."""
    for step in steps:
        nodes = {rank: graphs[rank].nodes[index] for rank, index in _members(step)}
        if phase and any(node.phase != phase for node in nodes.values()):
            continue
        if all(var in values[rank] for rank, node in nodes.items() for var in node.operands()):
            try:
                found = _results(run, step, graphs, values)
            except RuleFailedError:
                continue
            for rank, results in found.items():
                values[rank].update(zip(nodes[rank].outs, results, strict=False))


def _advance(run: PointRun[Number], graph: Graph, places: Iterable[int], values: dict[Var, Number]) -> None:
    for place in places:
        node = graph.nodes[place]
        if node.op in run.traits or any(var not in values for var in node.operands()):
            continue
        try:
            values.update(zip(node.outs, run.results(node, graph, values), strict=True))
        except Unsupported:
            continue


def _started(graph: Graph, leaves: Mapping[str, Number]) -> dict[Var, Number]:
    values = {var: leaves[name] for var, name in graph.inputs.items()}
    values.update((var, _literal(constant)) for var, constant in graph.constants.items())
    return values


def _literal(constant: Constant) -> Number:
    if constant.data is None:
        return _draw(f"literal {constant.digest}", shape_of(constant.type), kind_of(constant.type.dtype), None)
    return Numbers().literal(elements(constant))


def _drawn(capture: Capture, turn: int) -> dict[str, Number]:
    spans = index_ranges(capture)
    return {leaf.name: _leaf(leaf, spans.get(leaf.name), turn) for leaf in capture.leaves}


def _leaf(leaf: Leaf, span: IndexRange | None, turn: int) -> Number:
    if leaf.value is not None:
        return _literal(leaf.value)
    return _draw(f"{leaf.name} {turn}" if turn else leaf.name, shape_of(leaf.type), kind_of(leaf.type.dtype), span)


def _draw(name: str, shape: tuple[int, ...], kind: Kind, span: IndexRange | None) -> Number:
    drawn = generator(name)
    if kind == "bool":
        return Number(drawn.random(shape) < 0.5)
    if kind == "int":
        low, high = (span.low, span.high) if span is not None else (0, 4)
        return Number(drawn.integers(low, max(high, low + 1), shape))
    return Number(drawn.standard_normal(shape))


def _extents(capture: Capture) -> tuple[int, int]:
    """Elements of the largest tensor and of all together; more than any bound where a size is known only when the program runs."""
    largest = total = 0
    for graph in capture.graphs:
        for kind in graph.types.values():
            sizes = [size for size in kind.shape if isinstance(size, int)]
            if len(sizes) < len(kind.shape):
                return _ELEMENTS + 1, _TOTAL + 1
            count = math.prod(sizes)
            largest, total = max(largest, count), total + count
    return largest, total


def _identical(a: Array, b: Array) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
