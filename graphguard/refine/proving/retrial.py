"""Ranks that differ in a few calls from ranks that are evaluated: only what changed is evaluated, and only as far as it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from graphguard.ir import Capture, Node, Var
from graphguard.ir.joining import Joined, JoinedCall, Step
from graphguard.refine.evaluation.evaluate import Evaluator, Values
from graphguard.refine.outcome import SPECIFICATION, Gap, Location
from graphguard.relations.terms.values import NormalValue


@dataclass(frozen=True, slots=True)
class Before:
    """Evaluated ranks: values, those of outputs by name, calls by identity, and by its first result what was not understood of a call."""

    values: list[Values]
    outputs: tuple[Mapping[str, NormalValue | None], ...]
    calls: tuple[Mapping[int, Node], ...]
    gaps: Mapping[tuple[int, Var], Gap]

    @classmethod
    def of(cls, capture: Capture, values: list[Values], evaluator: Evaluator) -> Before:
        """The ranks of a capture that an evaluator evaluated."""
        gaps = {
            (where.graph, capture.ranks[where.graph].nodes[where.node].outs[0]): gap
            for where, gap in evaluator.gaps.items()
            if where.graph != SPECIFICATION and capture.ranks[where.graph].nodes[where.node].outs
        }
        outputs = tuple(
            {name: held.get(var) for name, var in graph.outputs.items()}
            for graph, held in zip(capture.ranks, values, strict=True)
        )
        return cls(values, outputs, tuple({id(node): node for node in graph.nodes} for graph in capture.ranks), gaps)


class Retrial:
    """One evaluation of the changed ranks; a call that stayed as it was, of values that stayed as they were, gives what it gave."""

    def __init__(
        self,
        capture: Capture,
        joined: Joined,
        evaluator: Evaluator,
        leaves: Mapping[str, NormalValue],
        before: Before,
    ) -> None:
        self.capture = capture
        self.joined = joined
        self.evaluator = evaluator
        self.before = before
        self.values = [evaluator.start(graph, leaves) for graph in capture.ranks]
        self._done: set[int] = set()
        self._alike: bool | None = None

    def towards(self, names: Iterable[str]) -> None:
        """Evaluate what some outputs rest on."""
        wanted = [{graph.outputs[name] for name in names if name in graph.outputs} for graph in self.capture.ranks]
        steps = []
        for number in range(len(self.joined.order) - 1, -1, -1):
            members = _members(self.joined.order[number])
            nodes = [(rank, self.capture.ranks[rank].nodes[index]) for rank, index in members]
            if any(not wanted[rank].isdisjoint(node.outs) for rank, node in nodes):
                steps.append(number)
                for rank, node in nodes:
                    wanted[rank].update(node.reads)
        self._run(reversed(steps))

    def all(self) -> None:
        """Evaluate everything."""
        self._run(range(len(self.joined.order)))

    def stayed(self, name: str) -> bool:
        """Whether an output is on every rank what it was, and so is how the ranks lay out what they are given."""
        if not self._laid_out_alike():
            return False
        for values, graph, before in zip(self.values, self.capture.ranks, self.before.outputs, strict=True):
            if (name in graph.outputs) != (name in before):
                return False
            if name in graph.outputs and values.get(graph.outputs[name]) is not before[name]:
                return False
        return True

    def _laid_out_alike(self) -> bool:
        if self._alike is None:
            graphs = zip(self.capture.ranks, self.before.calls, strict=True)
            preludes = ((node, calls) for graph, calls in graphs for node in graph.nodes if node.phase == "prelude")
            self._alike = all(id(node) in calls for node, calls in preludes)
        return self._alike

    def _run(self, steps: Iterable[int]) -> None:
        for number in steps:
            if number in self._done:
                continue
            self._done.add(number)
            step = self.joined.order[number]
            members = _members(step)
            if all(self._is_known(rank, index) for rank, index in members):
                for rank, index in members:
                    self._keep(rank, index)
            elif isinstance(step, JoinedCall):
                self.evaluator.collective(step, self.values)
            else:
                rank, index = step
                graph = self.capture.ranks[rank]
                self.evaluator.node(Location(rank, index), graph.nodes[index], graph, self.values[rank])

    def _is_known(self, rank: int, index: int) -> bool:
        node, values, known = self.capture.ranks[rank].nodes[index], self.values[rank], self.before.values[rank]
        if id(node) not in self.before.calls[rank]:
            return False
        for var in node.reads:
            value = values.get(var)
            if value is None or value is not known.get(var):
                return False
        return True

    def _keep(self, rank: int, index: int) -> None:
        node, known = self.capture.ranks[rank].nodes[index], self.before.values[rank]
        for out in node.outs:
            if out in known:
                self.values[rank][out] = known[out]
        gap = self.before.gaps.get((rank, node.outs[0])) if node.outs else None
        if gap is not None:
            where = Location(rank, index)
            self.evaluator.gaps[where] = replace(gap, where=where)


def _members(step: Step) -> list[tuple[int, int]]:
    return list(step.nodes.items()) if isinstance(step, JoinedCall) else [step]
