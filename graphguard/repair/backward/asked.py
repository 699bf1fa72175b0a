"""Gradients that autograd computes because the program asks for them: one that stays within autograd is at fault where the forward pass made what it is of."""

from __future__ import annotations

import ast
from dataclasses import replace

from graphguard.ir import Graph, Node, Span
from graphguard.ir.graph import COLLECTIVES
from graphguard.repair.graph.edits import Edit, InsertGather, InsertReduction, Scale
from graphguard.repair.text.frames import Sources
from graphguard.repair.writing.dead import source_of

_ASKING = frozenset({"backward", "grad"})


def forward_place(graph: Graph, node: Node, edit: Edit, sources: Sources) -> Span | None:
    """The forward call of a gradient that the program asked for and that is computed otherwise, or changed where the program never sees it; None for any other node.

    What is to be done to a gradient that the program sees is done where it asked for it; so is what is wrong with an exchange, which no forward call of the program made.
    """
    if node.phase != "backward" or node.forward < 0 or node.op in COLLECTIVES or not is_asked(graph, node, sources):
        return None
    if isinstance(edit, InsertReduction | InsertGather | Scale) and _seen(graph, node):
        return None
    return sources.place(graph, replace(node, stack=-1))


def differentiated(span: Span | None, sources: Sources) -> str:
    """What the author calls the one tensor with respect to which ``torch.autograd.grad`` is called at a place; empty for several, and for any other call."""
    program = sources.program(span.file) if span is not None else None
    match program.expression(span) if program is not None and span is not None else None:
        case ast.Call(
            func=ast.Attribute(attr="grad") | ast.Name(id="grad"), args=[_, ast.Name() | ast.Attribute() as one]
        ):
            return program.source(one) if program is not None else ""
    return ""


def is_asked(graph: Graph, node: Node, sources: Sources) -> bool:
    """Whether a node was run by a call such as ``loss.backward()``, and not by a hook or the backward of a function."""
    frames = (frame.span for frame in graph.stack_of(node.stack) if sources.in_project(frame.span.file))
    span = next(frames, None)
    program = sources.program(span.file) if span is not None else None
    match program.expression(span) if program is not None and span is not None else None:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            return name in _ASKING
    return False


def by_hand(graph: Graph, node: Node, span: Span | None = None) -> bool:
    """Whether a function named ``backward`` runs a node, as those of ``torch.autograd.Function`` are; at this very place where one is given."""
    frames = (frame for frame in graph.stack_of(node.stack) if span is None or frame.span == span)
    return any(frame.function.rpartition(".")[2] == "backward" for frame in frames)


def is_computed(graph: Graph, node: Node, span: Span, sources: Sources) -> bool:
    """Whether the code at a place computes a gradient itself, in a backward written by hand."""
    return node.phase == "backward" and by_hand(graph, node, span) and not is_asked(graph, node, sources)


def _seen(graph: Graph, node: Node) -> bool:
    """Whether the program reads what a node gives, rearranged at most: it is an output, or read by what the same call of autograd did not run."""
    producers = graph.producers()
    own = set(node.outs)
    readers = (each for each in graph.nodes if each.phase != "backward" or each.stack != node.stack)
    read = [*graph.outputs.values(), *(var for each in readers for var in each.operands())]
    return any(var in own or source_of(graph, var, producers) in own for var in read)
