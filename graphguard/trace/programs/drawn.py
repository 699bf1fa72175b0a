"""Random numbers that a rank of a script draws from a seed of its own: nothing says which of one rank's they stand for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphguard.ir import Trouble
from graphguard.ir.graph import Graph, Var
from graphguard.ir.joining import span_of


def needed(graph: Graph) -> set[Var]:
    """The values of which something is made that is an output."""
    producers = graph.producers()
    seen: set[Var] = set()
    pending = list(graph.outputs.values())
    while pending:
        var = pending.pop()
        if var not in seen:
            seen.add(var)
            pending += graph.nodes[producers[var]].operands() if var in producers else ()
    return seen


def _drawn(graph: Graph) -> dict[str, int]:
    """The streams that outputs depend on, each with its first call."""
    found: dict[str, int] = {}
    values = needed(graph)
    for index, node in enumerate(graph.nodes):
        if node.draw is not None and not values.isdisjoint(node.outs):
            found.setdefault(node.draw[0], index)
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
