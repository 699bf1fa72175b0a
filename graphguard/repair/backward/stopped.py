"""Gradients that stop: the specification passes one on through an operator, and no rank does, as where an operand was detached."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from graphguard.ir import Capture, Graph, Node, Span, Var
from graphguard.refine.outcome import SPECIFICATION, Location
from graphguard.refine.proving.proof import Proof
from graphguard.repair.graph.alignment import Alignment, family
from graphguard.repair.graph.edits import Tensors
from graphguard.repair.graph.holding import holds_operand
from graphguard.repair.graph.slices import LAYOUT
from graphguard.repair.text.program import Program, definitions
from graphguard.repair.writing.source import Draft
from graphguard.report.diagnostics import TextEdit


def stopped_gradient(capture: Capture, proof: Proof, alignment: Alignment) -> tuple[Location, Location] | None:
    """The ranks' forward call through which a gradient does not come back, and the specification's call that passes it on; None where there is none.

    That is an operator of the specification's frontier, of the backward pass, which no rank calls on the same operands although every rank holds them.
    Else, as where the ranks' gradients have another scale until they are averaged, any one that is not held.
    """
    spec = capture.spec
    if spec is None:
        return None
    for place in proof.outcome.specification_frontier:
        node = spec.nodes[place.node]
        if place.graph != SPECIFICATION or node.phase != "backward" or not node.outs or node.op in LAYOUT:
            continue
        meant = list(node.operands())
        if any(_computes(read, meant, proof) for read in _alike(capture, alignment, node)):
            continue
        if (found := _short(capture, spec, node, proof)) is not None:
            return found, place
    several = Counter((node.forward, family(node)) for node in spec.nodes if node.phase == "backward")
    for index, node in enumerate(spec.nodes):
        twice = node.phase == "backward" and node.op not in LAYOUT and several[node.forward, family(node)] > 1
        if not twice or not node.outs or proof.relation(node.outs[0]) is not None:
            continue
        if (found := _short(capture, spec, node, proof)) is not None:
            return found, Location(SPECIFICATION, index)
    return None


def _short(capture: Capture, spec: Graph, node: Node, proof: Proof) -> Location | None:
    """The ranks' forward call whose gradient a backward call of the specification is, where they differentiate it less."""
    return next((each for each in _forward(capture, spec, node, proof) if _is_short(capture, spec, node, each)), None)


def results_among(capture: Capture, promises: Iterable[str]) -> tuple[str, ...]:
    """Those promises that are no gradients, whatever the program calls them: a wrong result spoils the gradients that are computed of it."""
    producers = {} if capture.spec is None else capture.spec.producers()
    return tuple(
        name for name in promises if not (name.startswith("grad(") or _comes_of_backward(capture, producers, name))
    )


def is_gradient(capture: Capture, promise: str) -> bool:
    """Whether the specification's output of a promise comes out of a backward pass: a parameter's gradient, or one that a step hands out or steps with."""
    return _comes_of_backward(capture, {} if capture.spec is None else capture.spec.producers(), promise)


def _comes_of_backward(capture: Capture, producers: Mapping[Var, int], promise: str) -> bool:
    spec = capture.spec
    var = None if spec is None else spec.outputs.get(promise)
    waiting, seen = [] if var is None else [var], set[Var]()
    while spec is not None and waiting:
        index = producers.get(waiting.pop())
        if index is not None and spec.nodes[index].phase == "backward":
            return True
        operands = set(spec.nodes[index].operands()) - seen if index is not None else set[Var]()
        seen |= operands
        waiting += operands
    return False


def _is_short(capture: Capture, spec: Graph, node: Node, forward: Location) -> bool:
    """Whether the ranks differentiate their forward call, and not with respect to all that the specification does; for each time that it is called, as ranks may have fewer micro-batches."""
    graph = capture.ranks[forward.graph]
    call = graph.nodes[forward.node]
    own, meant = _differentiated(graph, call.stack, node), _differentiated(spec, node.forward, node)
    return 0 < own * _called(spec, node.forward, call) < meant * _called(graph, call.stack, call)


def _called(graph: Graph, stack: int, like: Node) -> int:
    """How many operators of one kind were called from a place."""
    return sum(each.phase == "forward" and each.stack == stack and family(each) == family(like) for each in graph.nodes)


def _differentiated(graph: Graph, stack: int, like: Node) -> int:
    """How many operators of one kind differentiate what was called from a place."""
    return sum(
        each.phase == "backward" and each.forward == stack and family(each) == family(like) for each in graph.nodes
    )


def detached_by(program: Program, span: Span) -> ast.Call | None:
    """The ``.detach()`` that what an expression reads went through, there or where the function around it names it."""
    value = program.expression(span)
    names = [node for node in ast.walk(value) if isinstance(node, ast.Name)] if value is not None else []
    near = [value] if value is not None else []
    for each in (*near, *(made for name in names for made in definitions(program, name))):
        for node in ast.walk(each):
            match node:
                case ast.Call(func=ast.Attribute(attr="detach"), args=[]):
                    return node
    return None


def attached(program: Program, span: Span) -> Iterator[Draft]:
    """Take a ``.detach()`` out."""
    value = program.expression(span)
    match value:
        case ast.Call(func=ast.Attribute(value=kept, attr="detach"), args=[]):
            yield Draft("remove .detach()", (TextEdit(program.span(value), program.source(kept)),))


def _alike(capture: Capture, alignment: Alignment, meant: Node) -> Iterator[list[Tensors]]:
    """What the ranks' calls of an operator in the backward pass read, operand by operand."""
    for position in alignment.positions:
        rank = min(position)
        node = capture.ranks[rank].nodes[position[rank]]
        if node.phase == "backward" and family(node) == family(meant):
            rows = {each: list(capture.ranks[each].nodes[index].operands()) for each, index in position.items()}
            count = min(map(len, rows.values()))
            yield [{each: row[place] for each, row in rows.items()} for place in range(count)]


def _computes(read: Sequence[Tensors], meant: Sequence[Var], proof: Proof) -> bool:
    """Whether the ranks' call reads what the specification's reads."""
    pairs = list(zip(meant, read, strict=False))
    return len(read) == len(meant) and all(holds_operand(proof, var, tensors) for var, tensors in pairs)


def _forward(capture: Capture, spec: Graph, node: Node, proof: Proof) -> Iterator[Location]:
    """The ranks' calls that give what the forward call of a gradient gives: several calls may give equal values."""
    calls = (each for each in spec.nodes if each.phase == "forward" and each.stack == node.forward)
    for call in calls if node.forward >= 0 else ():
        if call.op in LAYOUT or not call.outs:
            continue
        for tensors, _ in proof.holders(call.outs[0]):
            rank = min(tensors)
            index = capture.ranks[rank].producers().get(tensors[rank])
            if index is not None:
                yield Location(rank, index)
