"""What depends on what in one graph, by the numbers of its tensors; and where a single tensor is all that is still to be read."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from itertools import accumulate, pairwise
from operator import itemgetter, or_
from typing import Final

from graphguard.ir import Graph, Var
from graphguard.ir.graph import COLLECTIVES
from graphguard.refine.stages.calls import Calls

_SMALL: Final = 16  # calls on float inputs, or on parameters, that are rather made again than cut off
_LARGE: Final = 200  # the same for calls on indices and literals

Place = tuple[int, int]  # a node, after which only the tensor of this number is still to be read


class Flow:
    """What depends on what in one graph.

    ``static`` has the leaves behind every static tensor, as bits.  ``moving`` are the other calls: node, results, the tensors it reads that are not static, and the leaves
    behind those that are; ``early`` the nodes of static tensors of float inputs, with these as bits; ``runs`` are the first nodes of runs of one phase.
    ``own`` are the nodes that make no static tensor.
    """

    __slots__ = ("early", "graph", "labelled", "made", "moving", "own", "phases", "runs", "static", "whole")

    def __init__(self, graph: Graph, calls: Calls, bits: Mapping[str, int], inputs: int, floats: int) -> None:
        self.graph = graph
        self.labelled = labelled(graph)
        self.whole = True
        self.static: dict[int, int] = {var.id: bits[name] for var, name in graph.inputs.items()}
        self.static.update({var.id: 0 for var in graph.constants})
        self.made: dict[int, int] = {}
        self.moving: list[tuple[int, tuple[Var, ...], list[int], int]] = []
        self.early: dict[int, int] = {}
        self.runs: list[int] = []
        self.own: list[int] = []
        phases: list[str] = []
        sizes: dict[int, int] = {}
        static, made, moving, phase = self.static, self.made, self.moving, ""
        for index, (node, read) in enumerate(zip(graph.nodes, calls.reads, strict=True)):
            reads, mask, size = [], 0, 1
            for var in read:
                known = static.get(var)
                if known is None:
                    reads.append(var)
                    if var not in made:
                        self.whole = False
                else:
                    mask |= known
                    size += sizes.get(var, 0)
            still = not reads and node.op not in COLLECTIVES and node.draw is None and "empty" not in node.op
            if node.phase == "prelude":
                self.whole = self.whole and still
                size = 0
            elif still and mask:
                mixed = mask & inputs and mask & ~inputs
                still = not mixed and size <= (_SMALL if mask & floats else _LARGE)
                if still and mask & inputs & floats:
                    self.early[index] = mask & inputs & floats
            outs = node.outs
            for out in outs:
                made[out.id] = index
            if still:
                for out in outs:
                    static[out.id] = mask
                    sizes[out.id] = size
                if not outs:
                    self.own.append(index)
                continue
            self.own.append(index)
            moving.append((index, outs, reads, mask))
            if node.phase != phase:
                phase = node.phase
                phases.append(phase)
                self.runs.append(index)
        self.phases = tuple(phases)

    def op(self, var: int) -> str:
        """The operator that makes a tensor."""
        return self.graph.nodes[self.made[var]].op

    def run_of(self, var: Var) -> int | None:
        """The run that makes a tensor; None for one that is static."""
        return None if var.id in self.static else bisect_right(self.runs, self.made[var.id]) - 1

    def end_of(self, run: int) -> int:
        """The last node of a run, but for static ones."""
        return self.moving[self._row(self.runs[run + 1]) - 1][0]

    def _row(self, index: int) -> int:
        """How many calls before a node are moving."""
        return bisect_left(self.moving, index, key=itemgetter(0))

    def cuts(self) -> list[dict[int, list[Place]]]:
        """For every run, where only one tensor of the run is still to be read: leaves used so far in the run -> such places, the last first."""
        return [self._cuts(start, end) for start, end in pairwise([*self.runs, len(self.graph.nodes)])]

    def _cuts(self, start: int, end: int) -> dict[int, list[Place]]:
        moving = self.moving[self._row(start) : self._row(end)]
        used = list(accumulate([row[3] for row in moving], or_))
        found: dict[int, list[Place]] = {}
        live: set[int] = set()
        made = self.made
        for (index, outs, reads, _), leaves in zip(reversed(moving), reversed(used), strict=True):
            if len(live) == 1:
                places, (var,) = found.setdefault(leaves, []), live
                if (
                    places and places[-1][1] == var
                ):  # what stands between, such as gradients of weights, is of the next stage
                    places.pop()
                places.append((index, var))
            for out in outs:
                live.discard(out.id)
            for var in reads:
                if made[var] >= start:
                    live.add(var)
        return found


def labelled(graph: Graph) -> dict[str, Var]:
    """A rank's own parameters and buffers by name; its inputs where it has no such name."""
    out: dict[str, Var] = {}
    for var, name in (*graph.labels.items(), *graph.inputs.items()):
        out.setdefault(name, var)
    return out
