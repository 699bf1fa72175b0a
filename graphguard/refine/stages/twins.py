"""Ranks that run one program: they differ in literal arguments alone, such as where a rank's shard begins.

Twins read the same leaves and constants, make the same tensors of them in the same order and give the same outputs, so what depends on what, where the program can be
cut and how its tensors are numbered is found once for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from graphguard.ir import Graph, Var
from graphguard.refine.stages.calls import Calls, Row, said


@dataclass(frozen=True, slots=True)
class Programs:
    """The different programs among a job's graphs.

    ``twins`` are the ranks that run the program of another, by the first of them; the first graph, the specification, has none.  ``calls`` are the programs' calls by
    graph, twins' those of the first; ``unlike`` what a twin's calls say instead, by graph and node.
    """

    twins: dict[int, list[int]]
    calls: tuple[Calls, ...]
    unlike: dict[int, dict[int, Row]]

    @classmethod
    def of(cls, graphs: Sequence[Graph]) -> Programs:
        """The programs of a job; raises ``Unspelt``."""
        twins: dict[int, list[int]] = {0: []}
        calls = [Calls.of(graphs[0])]
        unlike: dict[int, dict[int, Row]] = {}
        for rank in range(1, len(graphs)):
            for first in twins:
                found = _unlike(graphs[first], calls[first], graphs[rank]) if first else None
                if found is not None:
                    twins[first].append(rank)
                    unlike[rank] = found
                    calls.append(calls[first])
                    break
            else:
                twins[rank] = []
                calls.append(Calls.of(graphs[rank]))
        return cls(twins, tuple(calls), unlike)


def _unlike(first: Graph, calls: Calls, other: Graph) -> dict[int, Row] | None:
    """What calls say that do not say what those of the first graph do, by node; None where the graphs are no twins."""
    if len(first.nodes) != len(other.nodes):
        return None
    for mine, theirs in zip(first.nodes, other.nodes, strict=True):
        if mine.phase != theirs.phase or mine.draw != theirs.draw:
            return None
        one, its = mine.outs, theirs.outs
        if len(one) == 1 == len(its):  # as nearly all calls
            if one[0].id != its[0].id:
                return None
        elif [out.id for out in one] != [out.id for out in its]:
            return None
    reads: list[list[int]] = [[] for _ in other.nodes]
    heads = list(map(said, other.nodes, reads))
    if reads != calls.reads:
        return None
    unlike: dict[int, Row] = {}
    for index, (row, its_row) in enumerate(zip(calls.heads, heads, strict=True)):
        if row != its_row:
            if row[0] != its_row[0]:
                return None
            unlike[index] = its_row
    same = all(a == b for a, b in zip(_named(first), _named(other), strict=True))
    return unlike if same and _has_types(other, calls) else None


def _named(graph: Graph) -> Iterator[tuple[list[int], list[object]]]:
    """What a graph reads and gives: the numbers of tensors, and names or values."""
    tables: list[dict[Var, Any]] = [graph.inputs, graph.constants, graph.labels]
    for table in tables:
        yield [var.id for var in table], list(table.values())
    yield [var.id for var in graph.outputs.values()], list(graph.outputs)


def _has_types(graph: Graph, calls: Calls) -> bool:
    """Whether the tensors of a graph have the types that those of another have."""
    kinds = graph.types.values()
    return [var.id for var in graph.types] == list(calls.kinds) and [
        (kind.shape, kind.dtype) for kind in kinds
    ] == list(calls.kinds.values())
