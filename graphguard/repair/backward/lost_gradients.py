"""Gradients that autograd works out and that nothing reads: those of a gather that passes none on, or of parameters whose reduction is switched off."""

from __future__ import annotations

import ast
import math
from collections.abc import Collection, Iterator, Mapping

from graphguard.ir import Capture, Graph, Node, Span, Var
from graphguard.ops import gg
from graphguard.refine.outcome import Location
from graphguard.repair.backward.asked import by_hand, is_asked
from graphguard.repair.graph.slices import JOINING, LAYOUT
from graphguard.repair.text.frames import Sources
from graphguard.repair.text.program import Program
from graphguard.repair.writing.dead import dead_everywhere
from graphguard.repair.writing.gathers import without_gradient
from graphguard.repair.writing.source import Draft
from graphguard.report.diagnostics import TextEdit

_SWITCHES = frozenset({"no_sync", "set_requires_gradient_sync"})


def unread_gradient(capture: Capture, sources: Sources) -> Location | None:
    """The first rank's first gradient that nothing reads, where every rank has one; None where there is none.

    Autograd works out what somebody asked for: such a gradient went to a tensor that does not pass it on.  What a backward written by hand brings up to date once
    too often, behind the last of its passes, is none.
    """
    found = [_unread(graph, sources) for graph in capture.ranks]
    return None if any(index is None for index in found) or found[0] is None else Location(0, found[0])


def without_gradients(capture: Capture, promise: str) -> Location | None:
    """The first exchange of the forward pass that carries no gradient, where a promised gradient rests on nothing that the program was given, on any rank; else None."""
    if any(promise not in graph.outputs or _rests_on_inputs(graph, graph.outputs[promise]) for graph in capture.ranks):
        return None
    node = next(
        (node for node in dead_everywhere(capture) if node.phase == "forward" and _is_read(capture.ranks[0], node)),
        None,
    )
    return None if node is None else Location(0, capture.ranks[0].nodes.index(node))


def cut_gather(capture: Capture) -> Location | None:
    """The first gather of the forward pass, of what is computed from parameters, that no gradient comes back through although what is made of its result is differentiated; None where there is none.

    Parameters that are gathered as they are, or in buckets, belong to a program that adds their gradients up by itself.
    """
    graph = capture.ranks[0]
    producers = graph.producers()
    learnt = {leaf.name for leaf in capture.leaves if leaf.kind == "parameter"}
    differentiated = {node.forward for node in graph.nodes if node.phase == "backward"}
    for index, node in enumerate(graph.nodes):
        if node.op != gg.all_gather or node.phase != "forward" or node.stack in differentiated:
            continue
        made = [at for var in node.operands() if (at := _computed(graph, producers, var)) is not None]
        rests = any(_rests_on(graph, producers, out, learnt) for at in made for out in graph.nodes[at].outs)
        if not rests or _comes_back(graph, node):
            continue
        if any(reader.stack in differentiated for reader in _readers(graph, node)):
            return Location(0, index)
    return None


def _comes_back(graph: Graph, gather: Node) -> bool:
    """Whether as much as was gathered is reduced to the same ranks' parts behind it: what was gathered has its gradient by hand, as sharded parameters have."""
    part, group = _elements(graph, next(gather.operands())), gather.args[-1]
    begun = next((index for index, node in enumerate(graph.nodes) if node.phase == "backward"), len(graph.nodes))
    return part is not None and any(
        node.op == gg.reduce_scatter and node.args[-1] == group and _elements(graph, node.outs[0]) == part
        for node in graph.nodes[begun:]
    )


def _elements(graph: Graph, var: Var) -> int | None:
    """How many elements a tensor has; None where the data decides."""
    sizes = [size for size in graph.types[var].shape if isinstance(size, int)]
    return math.prod(sizes) if len(sizes) == len(graph.types[var].shape) else None


def _computed(graph: Graph, producers: Mapping[Var, int], var: Var) -> int | None:
    """The call that computes what a tensor rearranges; None where it is an input."""
    index = producers.get(var)
    while index is not None and graph.nodes[index].op in LAYOUT:
        index = producers.get(next(graph.nodes[index].operands()))
    return index


def _rests_on(graph: Graph, producers: Mapping[Var, int], var: Var, leaves: Collection[str]) -> bool:
    waiting, seen = [var], {var}
    while waiting:
        each = waiting.pop()
        if graph.inputs.get(each) in leaves:
            return True
        index = producers.get(each)
        operands = set(graph.nodes[index].operands()) - seen if index is not None else set[Var]()
        seen |= operands
        waiting += operands
    return False


def _readers(graph: Graph, node: Node) -> Iterator[Node]:
    """The calls that compute with a call's results, rearranged and joined."""
    held = set(node.outs)
    for other in graph.nodes:
        if held.isdisjoint(other.operands()):
            continue
        if other.op in LAYOUT | JOINING:
            held.update(other.outs)
        else:
            yield other


def _rests_on_inputs(graph: Graph, var: Var) -> bool:
    producers, waiting, seen = graph.producers(), [var], {var}
    while waiting:
        each = waiting.pop()
        if each in graph.inputs:
            return True
        index = producers.get(each)
        operands = set(graph.nodes[index].operands()) - seen if index is not None else set[Var]()
        seen |= operands
        waiting += operands
    return False


def _is_read(graph: Graph, node: Node) -> bool:
    return any(not set(node.outs).isdisjoint(other.operands()) for other in graph.nodes)


def _unread(graph: Graph, sources: Sources) -> int | None:
    read = {var for node in graph.nodes for var in node.operands()} | set(graph.outputs.values())
    unread = (
        index
        for index, node in enumerate(graph.nodes)
        if node.phase == "backward"
        and node.op.startswith("aten.")
        and node.op not in LAYOUT
        and node.outs
        and read.isdisjoint(node.outs)
    )
    return next((index for index in unread if not _is_repeated(graph, graph.nodes[index], read, sources)), None)


def _is_repeated(graph: Graph, node: Node, read: set[Var], sources: Sources) -> bool:
    """Whether a backward written by hand calls an operator at one place several times, and reads what it gave another time."""
    own = by_hand(graph, node)
    same = (each for each in graph.nodes if own and (each.op, each.stack) == (node.op, node.stack))
    return any(not read.isdisjoint(each.outs) for each in same) and not is_asked(graph, node, sources)


def _forward_of(graph: Graph, node: Node) -> int | None:
    """The operator of the forward pass, the last at its place, that a gradient's operator differentiates."""
    calls = (i for i, each in enumerate(graph.nodes) if each.phase == "forward" and each.stack == node.forward)
    return max((index for index in calls if graph.nodes[index].op not in LAYOUT), default=None)


def switch(sources: Sources, span: Span | None) -> Span | None:
    """Where the function that asks for gradients switches their reduction off."""
    program = sources.program(span.file) if span is not None else None
    function = program.enclosing_function(span) if program is not None and span is not None else None
    if program is None or function is None:
        return None
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SWITCHES:
            return program.span(node)
    return None


def switched_on(program: Program, span: Span) -> Iterator[Draft]:
    """Leave the reduction of gradients on."""
    match program.expression(span):
        case ast.Call(func=ast.Attribute(attr="set_requires_gradient_sync"), args=[value, *_]):
            yield Draft("set_requires_gradient_sync(True)", (TextEdit(program.span(value), "True"),), span)


def gathered(capture: Capture, where: Location, sources: Sources) -> Span | None:
    """The gather without a gradient from which the forward pass has the tensor that a gradient's operator is about."""
    graph = capture.ranks[where.graph]
    index = _forward_of(graph, graph.nodes[where.node])
    return None if index is None else without_gradient(capture, Location(where.graph, index), sources)
