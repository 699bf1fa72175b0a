"""Operands of the specification's sums and products that no rank computes: they are made of what the ranks hold, and put where the other operand is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from graphguard.ir import Capture, Graph, Node, TensorType, Var
from graphguard.ops import traits_of
from graphguard.refine.proving.proof import Proof
from graphguard.repair.graph.editing import fresh, renamed
from graphguard.repair.graph.edits import OtherCalls, Tensors
from graphguard.repair.graph.neighbours import Guess, Neighbours

_JOINING = {"+": "added", "-": "subtracted", "*": "multiplied by", "/": "divided by"}
_STEPS = 4  # operators that make a missing operand
_HOLDERS = 3


def terms(proof: Proof, around: Neighbours) -> Iterator[Guess]:
    """A guess for each operator of the specification with two operands of which the ranks hold one, and neither the other nor the result."""
    spec = proof.capture.spec
    for node in spec.nodes if spec is not None else ():
        operands = list(node.operands())
        if traits_of(node.op).symbol not in _JOINING or len(operands) != 2 or proof.holders(node.outs[0]):
            continue
        for place, missing in enumerate(operands):
            held = proof.holders(operands[1 - place])
            if held and not proof.holders(missing):
                steps = _steps(missing, proof)
                for tensors, _ in held[:_HOLDERS] if steps else ():
                    yield from _put(node, operands[1 - place], tensors, steps, proof, around)


def _steps(missing: Var, proof: Proof) -> list[Node]:
    """The specification's operators that make a tensor of what all ranks hold whole, in order; none where that takes more than a few."""
    spec = proof.capture.spec
    assert spec is not None
    producers, found, waiting = spec.producers(), dict[int, Node](), [missing]
    while waiting:
        var = waiting.pop()
        if _whole(var, proof) is not None:
            continue
        index = producers.get(var)
        if index is None or len(found) == _STEPS:
            return []
        found[index] = spec.nodes[index]
        waiting += found[index].operands()
    return [found[index] for index in sorted(found)]


def _whole(var: Var, proof: Proof) -> Tensors | None:
    """The ranks' tensors that are one of the specification, whole on each."""
    for tensors, places in proof.holders(var):
        if all(place.kind == "replicate" for place in places.values()) and len(tensors) == proof.capture.world_size:
            return tensors
    return None


def _put(
    node: Node, other: Var, tensors: Tensors, steps: list[Node], proof: Proof, around: Neighbours
) -> Iterator[Guess]:
    site = next(
        (each for each in around.sites.values() if each.tensors and each.tensors.items() <= tensors.items()), None
    )
    if site is None or site.node.phase != "forward" or len(tensors) < proof.capture.world_size:
        return
    calls: dict[int, dict[int, tuple[Node, ...]]] = {}
    types: dict[int, dict[Var, TensorType]] = {}
    for rank, var in tensors.items():
        graph = proof.capture.ranks[rank]
        index = graph.producers().get(var)
        roots = {root: whole[rank] for step in steps for root in step.operands() if (whole := _whole(root, proof))}
        if index is None or any(graph.producers().get(root, -1) >= index for root in roots.values()):
            return
        types[rank] = {}
        calls[rank] = {index: _calls(proof.capture, graph, index, node, {**roots, other: var}, steps, types[rank])}
    told = (
        f"'{{name}}' lacks what the specification has {_JOINING[traits_of(node.op).symbol]} here: no rank computes it"
    )
    yield "wrong-relation", OtherCalls(calls, types, told), site, 0


def _calls(
    capture: Capture,
    graph: Graph,
    index: int,
    node: Node,
    names: dict[Var, Var],
    steps: list[Node],
    types: dict[Var, TensorType],
) -> tuple[Node, ...]:
    """The node that makes the held operand, those that make the other, and the operator that joins them, whose result takes the place of the first."""
    assert capture.spec is not None
    made = graph.nodes[index]
    held = next(var for var in names.values() if var in made.outs)
    template = replace(made, draw=None)

    def new(kind: TensorType) -> Var:
        var = Var(fresh(graph) + len(types))
        types[var] = kind
        return var

    before = new(graph.types[held])
    names = {meant: before if var == held else var for meant, var in names.items()}
    calls = [replace(made, outs=tuple(before if out == held else out for out in made.outs))]
    for step in steps:
        outs = tuple(new(capture.spec.types[out]) for out in step.outs)
        copy = renamed(step, names)
        calls.append(replace(template, op=copy.op, args=copy.args, kwargs=copy.kwargs, outs=outs))
        names.update(zip(step.outs, outs, strict=True))
    joined = renamed(node, names)
    return (*calls, replace(template, op=joined.op, args=joined.args, kwargs=joined.kwargs, outs=(held,)))
