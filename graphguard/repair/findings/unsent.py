"""Outputs that some ranks hand out as memory that nobody wrote, where others compute them: a last broadcast that is missing."""

from __future__ import annotations

from graphguard.ir import Capture, Graph
from graphguard.ir.ranks import ranks_text
from graphguard.ops import traits_of
from graphguard.refine.finding import Finding, Related
from graphguard.repair.graph.holding import holds_operand
from graphguard.repair.text.frames import Sources
from graphguard.repair.trying.search import Search
from graphguard.repair.writing.dead import source_of


def unsent_finding(found: Search, sources: Sources) -> Finding | None:
    """That nobody sends an output to the ranks that only make room for it, told where they do; None where every rank writes what is left."""
    capture = found.capture
    for name in found.left:
        empty = {
            rank: index for rank in range(len(capture.ranks)) if (index := _room(capture.ranks[rank], name)) is not None
        }
        making = [rank for rank in range(len(capture.ranks)) if rank not in empty and _holds(found, rank, name)]
        if empty and making:
            return _finding(found, name, empty, making, sources)
    return None


def _holds(found: Search, rank: int, output: str) -> bool:
    """Whether a rank has the specification's output whole."""
    spec, graph = found.capture.spec, found.capture.ranks[rank]
    if spec is None or output not in graph.outputs or output not in spec.outputs:
        return False
    return holds_operand(found.proof, spec.outputs[output], {rank: graph.outputs[output]})


def _finding(found: Search, name: str, empty: dict[int, int], making: list[int], sources: Sources) -> Finding:
    capture = found.capture
    first = min(empty)
    span = sources.place(capture.ranks[first], capture.ranks[first].nodes[empty[first]])
    what = sources.tensor_at(span) or name
    promise = next(each for each in found.proof.outcome.promises if each.name == name)
    related = [] if (made := _made(capture, making[0], name, sources)) is None else [made]
    return Finding(
        rule="wrong-relation",
        headline=f"'{what}' is memory that nobody writes to on {ranks_text(list(empty), ' and ')}: {ranks_text(making, ' and ')} computes it, and does not send it",
        span=span,
        needed=promise.needed,
        found=promise.told,
        tensor=what,
        promises=found.left,
        related=(*related, Related(capture.check.span, "the check that fails")),
    )


def _room(graph: Graph, output: str) -> int | None:
    """The call that made the memory which an output shows, where nothing was written to it."""
    producers = graph.producers()
    index = producers.get(source_of(graph, graph.outputs[output], producers)) if output in graph.outputs else None
    return index if index is not None and traits_of(graph.nodes[index].op).makes == "empty" else None


def _made(capture: Capture, rank: int, output: str, sources: Sources) -> Related | None:
    graph = capture.ranks[rank]
    index = graph.producers().get(graph.outputs[output])
    place = None if index is None else sources.place(graph, graph.nodes[index])
    return None if place is None else Related(place, f"rank {rank} computes it here")
