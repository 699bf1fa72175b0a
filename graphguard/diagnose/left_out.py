"""Gradients that a result counts on some ranks alone although every rank has a part of its own, as a norm does with parameters that are not marked as parts.

Numbers say so: a change of a rank's gradient, before anything else is made of it, changes the gradient that is handed out, and not the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from graphguard.diagnose.localise.numbers import Numbers, OutOfFuelError, same
from graphguard.ir import Capture, Graph, Var
from graphguard.ir.ranks import ranks_text
from graphguard.refine.finding import Finding
from graphguard.relations.numbers import Array, Number

_FUEL = 40_000  # calls that may run again: one or two seconds of a processor


def with_left_out(finding: Finding, capture: Capture) -> Finding:
    """A finding of a result that is made of gradients, with the parameters of which it leaves out what some ranks have."""
    asked = [one for one in capture.promises if one.name in finding.promises]
    if len(asked) != 1 or not _is_of_gradients(capture.ranks[0], asked[0].name):
        return finding
    numbers = Numbers.of(capture, [asked[0].name], _FUEL)
    try:
        found = [] if numbers is None else list(_LeftOut(numbers, asked[0].name).parameters())
    except OutOfFuelError:
        return finding
    said = tuple((name, f"{asked[0].name} counts its gradient of {ranks_text(ranks)} alone") for name, ranks in found)
    return replace(finding, parameters=(*finding.parameters, *said))


def _is_of_gradients(graph: Graph, name: str) -> bool:
    """Whether a result that is no gradient itself is computed of such."""
    if name.startswith("grad(") or name not in graph.outputs:
        return False
    makers, todo, seen = graph.producers(), [graph.outputs[name]], set[Var]()
    while todo:
        var = todo.pop()
        if var not in seen and var in makers:
            node = graph.nodes[makers[var]]
            if node.phase == "backward" and node.forward >= 0:
                return True
            todo += node.reads
        seen.add(var)
    return False


@dataclass(frozen=True, slots=True)
class _LeftOut:
    """The search for one result."""

    numbers: Numbers
    result: str

    def parameters(self) -> Iterator[tuple[str, list[int]]]:
        """The parameters, and the ranks whose gradients of them alone the result counts: no other rank has the same as one of these."""
        ranks = self.numbers.capture.ranks
        for name in (name for name in ranks[0].outputs if name.startswith("grad(")):
            held = [self._held(rank, graph.outputs.get(name)) for rank, graph in enumerate(ranks)]
            if any(value is None for value in held) or all(_alike(held[0], value) for value in held):
                continue
            made = [self._made(rank, name) for rank in range(len(ranks))]
            counted = [rank for rank, (_, var) in enumerate(made) if self.result in self._changes(rank, var)]
            others = (rank for rank in range(len(ranks)) if rank not in counted)
            if (
                counted
                and len({op for op, _ in made}) == 1
                and any(not any(_alike(held[rank], held[each]) for each in counted) for rank in others)
            ):
                yield name[5:-1], counted

    def _made(self, rank: int, name: str) -> tuple[str, Var]:
        """The call that makes a rank's gradient, and the tensor: the first one that a change of no other gradient comes with."""
        graph = self.numbers.capture.ranks[rank]
        makers, var = graph.producers(), graph.outputs[name]
        while var in makers:
            reads = graph.nodes[makers[var]].reads
            further = next((each for each in reads if self._gradients(rank, each) == {name}), None)
            if further is None:
                return graph.nodes[makers[var]].op, var
            var = further
        return "", var

    def _gradients(self, rank: int, var: Var) -> frozenset[str]:
        return frozenset(name for name in self._changes(rank, var) if name.startswith("grad("))

    def _changes(self, rank: int, var: Var) -> frozenset[str]:
        """The outputs that are others on some rank where a tensor is another one."""
        value = self._held(rank, var)
        if value is None or value.dtype.kind != "f":
            return frozenset()
        point, ranks = self.numbers.runs[0].refuter.point, self.numbers.capture.ranks
        drawn = np.random.default_rng(value.size).standard_normal(value.shape)
        changed = point.intervened({(rank, var): Number(value + drawn)})
        point.all(changed)
        self.numbers.fuel -= 1 + len(changed.done)
        if self.numbers.fuel < 0:
            raise OutOfFuelError
        return frozenset(
            name
            for each, graph in enumerate(ranks)
            for name, out in graph.outputs.items()
            if not _alike(self._held(each, out), _array(changed.value(each, out)))
        )

    def _held(self, rank: int, var: Var | None) -> Array | None:
        return None if var is None else self.numbers.runs[0].ranks[rank].get(var)


def _array(value: Number | None) -> Array | None:
    return None if value is None else value.array


def _alike(one: Array | None, other: Array | None) -> bool:
    return one is not None and other is not None and same(one, other)
