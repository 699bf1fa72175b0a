"""How the ranks' own tensors come from leaves, one tensor at a time: the part of every rank's prelude that makes it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from operator import attrgetter

from graphguard.confirm.run.elements import UnrunnableError
from graphguard.confirm.run.singles import computes_in_both
from graphguard.ir import Capture, Graph, Sym, Var
from graphguard.ir.graph import COLLECTIVES
from graphguard.ir.joining import Joined, join

Part = tuple[Joined, list[Graph]]
"""Graphs, one a rank, and how they run together."""


class Preludes:
    """What every rank does before the program proper.  Each part is cut out once, and is as large as what it makes."""

    def __init__(self, capture: Capture) -> None:
        self._ranks = [_Prelude(graph) for graph in capture.ranks]
        self._parts: dict[tuple[str, frozenset[int]], Part] = {}

    def making(self, tensor: str, ranks: Collection[int]) -> Part:
        """What makes a tensor of these ranks, as their only output; raises :class:`UnrunnableError`."""
        key = tensor, frozenset(ranks)
        if key not in self._parts:
            parts = [one.making(tensor if rank in key[1] else None) for rank, one in enumerate(self._ranks)]
            if any(node.op in COLLECTIVES for graph in parts for node in graph.nodes):
                # What a collective gives depends on all members, so all must compute what they give to it.
                parts = [replace(one.graph, outputs=part.outputs) for one, part in zip(self._ranks, parts, strict=True)]
            self._parts[key] = join(tuple(parts)), parts
        return self._parts[key]


class _Prelude:
    """One rank's prelude, and who makes what in it."""

    def __init__(self, graph: Graph) -> None:
        nodes = tuple(node for node in graph.nodes if node.phase == "prelude")
        self.graph = replace(graph, nodes=nodes, symbols={})
        self._producers = self.graph.producers()
        self._labelled = {name: var for var, name in (*graph.inputs.items(), *graph.labels.items())}
        # sizes that only the data decides are measured on any tensor, and float32 is rounded where some tensor is of float64
        measured = any(isinstance(size, Sym) for kind in graph.types.values() for size in kind.shape)
        self._whole = measured or computes_in_both(graph)

    def making(self, tensor: str | None) -> Graph:
        """The part that makes one tensor (None: nothing), as its only output."""
        if tensor is None:
            return replace(self.graph, types={}, inputs={}, nodes=(), constants={}, outputs={})
        if tensor not in self._labelled:
            raise UnrunnableError(f"a rank does not hold '{tensor}', whose layout was promised")
        found, indices = self._needed(self._labelled[tensor])
        needed = sorted(found, key=attrgetter("id"))
        part = replace(
            self.graph,
            nodes=tuple(self.graph.nodes[index] for index in sorted(indices)),
            constants={var: self.graph.constants[var] for var in needed if var in self.graph.constants},
            outputs={tensor: self._labelled[tensor]},
        )
        if self._whole:
            return part
        types = {var: self.graph.types[var] for var in needed}
        return replace(part, types=types, inputs={v: self.graph.inputs[v] for v in types if v in self.graph.inputs})

    def _needed(self, wanted: Var) -> tuple[set[Var], set[int]]:
        """The tensors from which one is made, those that are made with them included, and the calls."""
        needed, indices, pending = {wanted}, set[int](), [wanted]
        while pending:
            index = self._producers.get(pending.pop())
            if index is None or index in indices:
                continue
            indices.add(index)
            operands = set(self.graph.nodes[index].operands())
            pending.extend(operands - needed)
            needed.update(operands, self.graph.nodes[index].outs)
        return needed, indices
