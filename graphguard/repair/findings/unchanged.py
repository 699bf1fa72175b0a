"""Parameters that a program hands out as they were given to it, where the specification changes them: a step of the optimizer that is not taken."""

from __future__ import annotations

from collections.abc import Iterable

from graphguard.ir import Capture, Graph, Span
from graphguard.ops import gg
from graphguard.refine.finding import Finding, Related
from graphguard.repair.graph.slices import JOINING, LAYOUT
from graphguard.repair.text.frames import Sources
from graphguard.repair.trying.search import Search
from graphguard.repair.writing.words import listed

_MOVING = LAYOUT | JOINING | {gg.all_gather}


def unchanged(capture: Capture, outputs: Iterable[str]) -> list[str]:
    """Of these outputs those that are a parameter of every rank's as it was, rearranged at most, by the parameter's name; the specification has them otherwise."""
    parameters = {leaf.name for leaf in capture.leaves if leaf.kind == "parameter"}
    found = []
    for name in outputs:
        given = {_given(graph, name) for graph in capture.ranks}
        only = given.pop() if len(given) == 1 else None
        if only in parameters and capture.spec is not None and _given(capture.spec, name) != only:
            found.append(str(only))
    return found


def unchanged_finding(found: Search, sources: Sources) -> Finding | None:
    """That parameters are handed out as they were given, told where the program asks for their gradients; None where what is left is none of these."""
    capture, kept = found.capture, unchanged(found.capture, found.left)
    span = _last_gradient(capture, sources)
    if not kept or span is None:
        return None
    promise = next(promise for promise in found.proof.outcome.promises if promise.name in found.left)
    are, it = ("is returned as it was", "it") if len(kept) == 1 else ("are returned as they were", "them")
    changed = made_by_specification(capture, promise.name, sources)
    related = [] if changed is None else [Related(changed, "the specification changes " + it)]
    return Finding(
        rule="wrong-relation",
        headline=f"{listed(kept, 4)} {are}: the specification changes {it}, and the ranks read no gradient of {it}",
        span=span,
        tensor=kept[0],
        promises=found.left,
        related=(*related, Related(capture.check.span, "the check that fails")),
    )


def made_by_specification(capture: Capture, output: str, sources: Sources) -> Span | None:
    """Where the specification makes what an output stands for."""
    assert capture.spec is not None
    var = capture.spec.outputs[output]
    return next((sources.place(capture.spec, node) for node in capture.spec.nodes if var in node.outs), None)


def _last_gradient(capture: Capture, sources: Sources) -> Span | None:
    """Where the project asks for the last operator of the first rank's backward passes."""
    graph = capture.ranks[0]
    index = max((at for at, node in enumerate(graph.nodes) if node.phase == "backward"), default=None)
    if index is None:
        return None
    frames = (frame.span for frame in graph.stack_of(graph.nodes[index].stack))
    return next((span for span in frames if sources.in_project(span.file)), None)


def _given(graph: Graph, output: str) -> str | None:
    """The only input of which an output is made by moving elements; None where anything is computed."""
    producers = graph.producers()
    waiting, inputs = [graph.outputs[output]] if output in graph.outputs else [], set[str]()
    seen = set(waiting)
    while waiting:
        var = waiting.pop()
        if var in graph.inputs:
            inputs.add(graph.inputs[var])
            continue
        index = producers.get(var)
        if index is None or (graph.nodes[index].op not in _MOVING and graph.nodes[index].phase != "prelude"):
            return None
        operands = set(graph.nodes[index].operands()) - seen
        seen |= operands
        waiting += operands
    return inputs.pop() if len(inputs) == 1 else None
