"""What the tensors in a source file are, place by place: the data behind hover and inlay hints."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from graphguard.checks.explorer.drawing import shown_shape
from graphguard.ir import Capture, Graph, Node, Span
from graphguard.ir.graph import Var
from graphguard.ir.spans import Frame
from graphguard.refine.found.naming import names_of
from graphguard.refine.proving.proof import Proof
from graphguard.relations.layouts import layout
from graphguard.relations.relation import Relation, placed

SHOWN_FRAMES = 4
SHOWN_OPERANDS = 5
_WORDS = re.compile(r"^(\S+ \* )?(partial sum of )?(part of |rearrangement of )?")


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor that a source range reads: ``text`` and ``layout`` as in :class:`Place`, ``span`` where it was made, None for an input or a parameter."""

    name: str
    text: str
    layout: str = ""
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A source range that produced a tensor, and what that tensor is.

    ``side`` is ``specification`` or ``implementation``; ``text`` holds one line: for the specification's tensors their relation to
    the ranks, for a rank's tensors what they are of the specification; ranks that agree share one place (``ranks``).
    ``layout`` says a relation in DTensor's words where it is one of placements, of a rank's tensor that of all ranks together.  ``operands`` are what the range reads that it did not make itself.
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
    operands: tuple[Operand, ...] = ()
    layout: str = ""


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
    return name if name in made else re.split(r"\[| \(", name)[0]


def _specification_places(capture: Capture, proof: Proof) -> list[Place]:
    spec = capture.spec
    assert spec is not None
    names = proof.names()
    reading = _Reading(spec, names_of(spec))

    def operand(var: Var, span: Span | None) -> Operand | None:
        relation = proof.relation(var)
        return None if relation is None else Operand(names.get(var, ""), str(relation), _layout(relation), span)

    found: list[Place] = []
    for index, node in enumerate(spec.nodes):
        if node.phase == "prelude" or not node.outs:
            continue
        relation = proof.relation(node.outs[0])
        text = str(relation) if relation is not None else "no clean relation to the ranks' tensors"
        shape = shown_shape(spec, node.outs[0])
        for depth, (span, read) in enumerate(reading.at(index)):
            operands = tuple(one for var, place in read if (one := operand(var, place)) is not None)
            made = Place(span, "specification", node.op, shape, text, phase=node.phase, depth=depth, operands=operands)
            found.append(made if relation is None else replace(made, layout=_layout(relation)))
    return found


def _layout(relation: Relation) -> str:
    return layout(relation) if relation.placements is not None else ""


def _implementation_places(capture: Capture, proof: Proof) -> list[Place]:
    merged: dict[Place, list[int]] = {}
    known: dict[tuple[int, Var], str | None] = {}
    readings = [_Reading(graph, names_of(graph)) for graph in capture.ranks]

    def describe(rank: int, var: Var) -> str | None:
        if (rank, var) not in known:
            known[(rank, var)] = proof.describe(rank, var)
        return known[(rank, var)]

    def operand(rank: int, var: Var, span: Span | None) -> Operand | None:
        text = describe(rank, var)
        return None if text is None else Operand(readings[rank].names.get(var, ""), text, span=span)

    axes: dict[int, str] = {}
    for rank, index, node in _in_step(capture):
        text = describe(rank, node.outs[0]) or "not on the relation to the specification"
        if index not in axes:
            axes[index] = _laid_out(capture, proof, index) if text.startswith("partial sum of ") else ""
        shape = shown_shape(capture.ranks[rank], node.outs[0])
        for depth, (span, read) in enumerate(readings[rank].at(index)):
            operands = tuple(one for var, made in read if (one := operand(rank, var, made)) is not None)
            place = Place(
                span,
                "implementation",
                node.op,
                shape,
                text,
                phase=node.phase,
                depth=depth,
                operands=operands,
                layout=axes[index],
            )
            ranks = merged.setdefault(place, [])
            if rank not in ranks:
                ranks.append(rank)
    return [replace(place, ranks=tuple(ranks)) for place, ranks in merged.items()]


def _laid_out(capture: Capture, proof: Proof, index: int) -> str:
    """How the partial sums that all ranks make in one call lie on a mesh of several axes, of which no rank's own text says which one they are summed over; empty where that is not known."""
    nodes = [graph.nodes[index] for graph in capture.ranks if index < len(graph.nodes)]
    alike = len(nodes) == len(capture.ranks) and len({(node.op, node.phase) for node in nodes}) == 1
    if not alike or proof.known is None or sum(size > 1 for size in capture.mesh.values()) < 2:
        return ""
    group = proof.group({rank: node.outs[0] for rank, node in enumerate(nodes)})
    if group is None or group.placements is None or group.factor != 1:
        return ""
    return placed(group.placements)


@dataclass(slots=True)
class _Run:
    """Consecutive operators of one source range: what they read, with where it was made, and what they made themselves."""

    last: int
    made: set[Var] = field(default_factory=set)
    read: dict[Var, Span | None] = field(default_factory=dict)


class _Reading:
    """What every source range of one program reads; its operators are asked for in order."""

    def __init__(self, graph: Graph, names: Mapping[Var, str]) -> None:
        self.names = names
        self._graph = graph
        self._makers = graph.producers()
        self._runs: dict[tuple[Span, str], _Run] = {}

    def at(self, index: int) -> Iterator[tuple[Span, list[tuple[Var, Span | None]]]]:
        """The ranges that an operator stands in, innermost first, each with the first few tensors that it read up to here from outside."""
        node = self._graph.nodes[index]
        frames = self._graph.stack_of(node.stack)
        for depth, frame in enumerate(frames[:SHOWN_FRAMES]):
            run = self._runs.get((frame.span, node.phase))
            if run is None or run.last < index - 1:
                run = self._runs[(frame.span, node.phase)] = _Run(index)
            run.last = index
            for var in node.operands():
                if len(run.read) < SHOWN_OPERANDS and var not in run.made and var not in run.read:
                    run.read[var] = self._made_at(var, frames[depth + 1 :])
            run.made.update(node.outs)
            yield frame.span, list(run.read.items())

    def _made_at(self, var: Var, callers: tuple[Frame, ...]) -> Span | None:
        """The expression that made a tensor: in the function that ``callers`` called where it was made by that call, else the innermost one."""
        maker = self._graph.nodes[self._makers[var]] if var in self._makers else None
        frames = self._graph.stack_of(maker.stack) if maker is not None and maker.phase != "prelude" else ()
        if not frames:
            return None
        within = frames[len(frames) - len(callers) :] == callers and len(frames) > len(callers)
        return frames[len(frames) - len(callers) - 1].span if within else frames[0].span


def _in_step(capture: Capture) -> list[tuple[int, int, Node]]:
    """The ranks' operators with all ranks in step, so that merging what they share keeps the order of execution on each."""
    found = [
        (index, rank, node)
        for rank, graph in enumerate(capture.ranks)
        for index, node in enumerate(graph.nodes)
        if node.phase != "prelude" and node.outs
    ]
    return [(rank, index, node) for index, rank, node in sorted(found, key=lambda each: each[:2])]
