"""What the tensors in a source file are, place by place: the data behind hover and inlay hints."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from graphguard.checks.explorer.drawing import shown_shape
from graphguard.ir import Capture, Node, Span
from graphguard.ir.graph import Var
from graphguard.refine.proving.proof import Proof

SHOWN_FRAMES = 4
_WORDS = re.compile(r"^(\S+ \* )?(partial sum of )?(part of |rearrangement of )?")


@dataclass(frozen=True, slots=True)
class Place:
    """A source range that produced a tensor, and what that tensor is.

    ``side`` is ``specification`` or ``implementation``; ``text`` holds one line: for the specification's tensors their relation to
    the ranks, for a rank's tensors what they are of the specification; ranks that agree share one place (``ranks``).
    ``operands`` says the same of what it was made of, where that is known.
    ``counterpart`` is where the other program computes the same tensor, where that is known; ``depth`` counts frames from the innermost one.
    """

    span: Span
    side: str
    operator: str
    shape: tuple[int, ...]
    text: str
    ranks: tuple[int, ...] = ()
    phase: str = "forward"
    counterpart: Span | None = None
    depth: int = 0
    operands: tuple[str, ...] = ()


def places(capture: Capture, proof: Proof) -> tuple[Place, ...]:
    """Every place of a capture, the specification's first, in execution order."""
    found: list[Place] = []
    if capture.spec is not None:
        found.extend(_specification_places(capture, proof))
    found.extend(_implementation_places(capture, proof))
    return tuple(_with_counterparts(found, _made_at(capture, proof)))


def _made_at(capture: Capture, proof: Proof) -> dict[str, Span]:
    """Where the specification makes each of its named tensors."""
    names = proof.names()
    found: dict[str, Span] = {}
    for node in capture.spec.nodes if capture.spec is not None else ():
        frames = capture.spec.stack_of(node.stack) if capture.spec is not None else ()
        for out in node.outs:
            if out in names and frames and node.phase != "prelude":
                found[names[out]] = frames[0].span
    return found


def _with_counterparts(found: list[Place], made: dict[str, Span]) -> list[Place]:
    """Each place with the other program's place of the same tensor, both ways."""
    back: dict[Span, Span] = {}
    linked = []
    for place in found:
        there = made.get(_tensor(place.text, made)) if place.side == "implementation" else None
        if there is not None and place.depth == 0:
            back.setdefault(there, place.span)
        linked.append(replace(place, counterpart=there))
    return [
        replace(place, counterpart=back.get(place.span)) if place.side == "specification" else place for place in linked
    ]


def _tensor(text: str, made: dict[str, Span]) -> str:
    """The specification's tensor that a description such as ``partial sum of down.mm`` or ``up.view[:, 0:4]`` speaks of."""
    name = _WORDS.sub("", text)
    return name if name in made else name.rpartition("[")[0]


def _specification_places(capture: Capture, proof: Proof) -> list[Place]:
    spec = capture.spec
    assert spec is not None
    found: list[Place] = []
    for node in spec.nodes:
        if node.phase == "prelude" or not node.outs:
            continue
        relation = proof.relation(node.outs[0])
        text = str(relation) if relation is not None else "no clean relation to the ranks' tensors"
        related = [proof.relation(operand) for operand in node.operands()]
        place = Place(
            capture.check.span,
            "specification",
            node.op,
            shown_shape(spec, node.outs[0]),
            text,
            phase=node.phase,
            operands=tuple(str(each) for each in related if each is not None),
        )
        found.extend(
            replace(place, span=frame.span, depth=depth)
            for depth, frame in enumerate(spec.stack_of(node.stack)[:SHOWN_FRAMES])
        )
    return found


def _implementation_places(capture: Capture, proof: Proof) -> list[Place]:
    merged: dict[Place, list[int]] = {}
    known: dict[tuple[int, Var], str | None] = {}

    def describe(rank: int, var: Var) -> str | None:
        if (rank, var) not in known:
            known[(rank, var)] = proof.describe(rank, var)
        return known[(rank, var)]

    for rank, node in _in_step(capture):
        text = describe(rank, node.outs[0]) or "not on the relation to the specification"
        operands = tuple(found for operand in node.operands() if (found := describe(rank, operand)) is not None)
        graph = capture.ranks[rank]
        shape = shown_shape(graph, node.outs[0])
        for depth, frame in enumerate(graph.stack_of(node.stack)[:SHOWN_FRAMES]):
            place = Place(
                frame.span, "implementation", node.op, shape, text, phase=node.phase, depth=depth, operands=operands
            )
            ranks = merged.setdefault(place, [])
            if rank not in ranks:
                ranks.append(rank)
    return [replace(place, ranks=tuple(ranks)) for place, ranks in merged.items()]


def _in_step(capture: Capture) -> list[tuple[int, Node]]:
    """The ranks' operators with all ranks in step, so that merging what they share keeps the order of execution on each."""
    found = [
        (index, rank, node)
        for rank, graph in enumerate(capture.ranks)
        for index, node in enumerate(graph.nodes)
        if node.phase != "prelude" and node.outs
    ]
    return [(rank, node) for _, rank, node in sorted(found, key=lambda each: each[:2])]
