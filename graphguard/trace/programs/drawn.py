"""Random numbers that a rank of a script draws from a seed of its own: nothing says which of one rank's they stand for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphguard.ir import Trouble
from graphguard.ir.graph import Graph
from graphguard.ir.joining import span_of


def needed_nodes(graph: Graph) -> list[int]:
    """The calls of which something is made that is an output."""
    producers = graph.producers()
    seen: set[int] = set()
    pending = list(graph.outputs.values())
    while pending:
        index = producers.get(pending.pop())
        if index is not None and index not in seen:
            seen.add(index)
            pending += graph.nodes[index].operands()
    return sorted(seen)


def _drawn(graph: Graph) -> dict[str, int]:
    """The streams that outputs depend on, each with its first call."""
    found: dict[str, int] = {}
    for index in needed_nodes(graph):
        draw = graph.nodes[index].draw
        if draw is not None:
            found.setdefault(draw[0], index)
    return found


def drawn_elsewhere(alone: Graph, ranks: Sequence[Graph]) -> Iterator[Trouble]:
    """The first draw of a rank from a seed that the program on one rank does not draw from."""
    known = _drawn(alone)
    for rank, graph in enumerate(ranks):
        for stream, index in _drawn(graph).items():
            if stream not in known:
                seed = stream.partition(":")[2]
                message = (
                    f"rank {rank} draws random numbers {f'from seed {seed}' if seed else 'of its own'} here, and one rank alone does not\n"
                    "needed: numbers that can be compared, such as the items of a dataset\n"
                    "fix: seed all ranks alike for this run, read samples from a DataLoader, or have no dropout in it"
                )
                yield Trouble("trace-error", message, span_of(graph, index), rank)
                return
