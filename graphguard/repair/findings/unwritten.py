"""Memory that a rank makes, and reads where nothing was written to it."""

from __future__ import annotations

from graphguard.confirm.confirmation import Confirmation
from graphguard.ir import Capture, Graph, Var
from graphguard.refine.finding import Finding, Related
from graphguard.repair.graph.slices import JOINING, LAYOUT
from graphguard.repair.text.frames import Sources
from graphguard.repair.writing.words import spoiled_text


def unwritten_finding(capture: Capture, numbers: Confirmation, sources: Sources) -> Finding | None:
    """The finding of outputs that move with what lies in memory that nobody wrote, where it is made; None where there is no such memory."""
    if numbers.unwritten is None:
        return None
    rank, index = numbers.unwritten
    graph = capture.ranks[rank]
    memory = graph.nodes[index].outs[0]
    span = sources.place(graph, graph.nodes[index])
    label, reader = _read(graph, index)
    what = label or sources.tensor_at(span) or "torch.empty"
    read = None if reader is None else sources.place(graph, graph.nodes[reader])
    related = (Related(read, "it is read here"),) if read is not None and read != span else ()
    return Finding(
        rule="wrong-relation",
        headline=f"'{what}' is read in places that nothing was written to: {spoiled_text(numbers.differing)}",
        span=span,
        needed="a value at every place that is read",
        found=f"memory of shape {list(graph.types[memory].shape)} as it was, on rank {rank}",
        tensor=what,
        promises=numbers.differing,
        related=(*related, Related(capture.check.span, "the check that fails")),
        seen=True,
    )


def _read(graph: Graph, made: int) -> tuple[str, int | None]:
    """The name under which a rank holds memory, and the call that first computes with it: it may be moved, and written to in part, before."""
    held: set[Var] = set(graph.nodes[made].outs)
    label = ""
    for index, node in enumerate(graph.nodes[made + 1 :], start=made + 1):
        if held.isdisjoint(node.operands()):
            continue
        name = node.op.split(".")[1]
        if node.op not in LAYOUT | JOINING and "scatter" not in name and name not in ("copy", "index_put"):
            return label, index
        held.update(node.outs)
        label = label or next((graph.labels[var] for var in node.outs if var in graph.labels), "")
    return label, None
