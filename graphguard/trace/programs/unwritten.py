"""Memory that a program computes with and that nobody wrote: as a rule a parameter that is not reached from what is compared."""

from __future__ import annotations

from graphguard.ir import Trouble
from graphguard.ir.graph import COLLECTIVES, Graph, Node, Var
from graphguard.ir.joining import span_of
from graphguard.ops import aten, gg, operators, traits_of
from graphguard.trace.programs.job import Job

# What takes memory as it is, whether anybody wrote it or not.
_CARRIED = operators(lambda op: op.moves in ("view", "permute", "expand", "part", "split")) | {
    *(aten.detach.default, aten.alias.default, aten.view.dtype),
}


def unwritten(job: Job, spec: Graph, graphs: tuple[Graph, ...]) -> tuple[Trouble, ...]:
    """A program that computes with memory that was there before and that nobody wrote: a parameter which is not reached from ``spec`` or ``impl``."""
    for rank, graph in enumerate((spec, *graphs), start=-1):
        empty = _memory(graph)
        if not empty:
            continue
        live = _live(graph)
        for index, node in enumerate(graph.nodes):
            read = next((var for var in node.operands() if var in empty), None)
            if read is None or node.op in _CARRIED or live.isdisjoint(node.outs) or _overwrites(node, rank):
                continue
            origin = empty[read]
            shape = list(graph.types[graph.nodes[origin].outs[0]].shape)
            who = "spec" if rank < 0 else "impl"
            message = (
                f"a tensor of shape {shape} is used that nobody gave a value: no parameter that is reached from {who}\n"
                f"fix: let {who} be the module that holds it, or a function that refers to that module; or fill it\n"
                f"while recording {job.title(rank)}"
            )
            related = ((span, "it is made here"),) if (span := span_of(graph, origin)) is not None else ()
            where = span_of(graph, index) or job.check.span
            return (Trouble("ambiguous-parameter", message, where, max(rank, 0), (), related),)
    return ()


def _overwrites(node: Node, rank: int) -> bool:
    """Whether what a program takes is written and not read: memory that a broadcast fills is the other ranks' to give."""
    op = node.op
    if op == gg.broadcast:
        return node.args[1] != rank
    return "scatter" in op or "copy" in op or "index_put" in op or "fill" in op or op.endswith("_like.default")


def _memory(graph: Graph) -> dict[Var, int]:
    """Values of the prelude that are uninitialised memory or views of it, with the node that made the memory."""
    found: dict[Var, int] = {}
    if all(node.phase != "prelude" for node in graph.nodes):
        return found
    for index, node in enumerate(graph.nodes):
        if node.phase == "prelude" and traits_of(node.op).makes == "empty":
            found.update(dict.fromkeys(node.outs, index))
        elif node.op in _CARRIED:
            origin = next((found[var] for var in node.operands() if var in found), None)
            if origin is not None:
                found.update(dict.fromkeys(node.outs, origin))
    return found


def _live(graph: Graph) -> set[Var]:
    """What the outputs and the collectives depend on."""
    wanted = set(graph.outputs.values())
    for node in reversed(graph.nodes):
        if node.op in COLLECTIVES or not wanted.isdisjoint(node.outs):
            wanted.update(node.operands())
    return wanted
