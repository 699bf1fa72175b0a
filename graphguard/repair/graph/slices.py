"""The part of the ranks' programs that a broken promise rests on, with what is known of every position in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from graphguard.ir import Capture, Node, Var
from graphguard.ir.joining import join
from graphguard.ops import aten, gg, operators
from graphguard.refine.found.lookup import GroupRelation
from graphguard.refine.proving.proof import Proof
from graphguard.repair.graph.alignment import Alignment, Position, outputs_of
from graphguard.repair.graph.edits import Tensors

State = Literal["whole", "partial", "off"]

#: All elements in other places; what a tensor is of the whole, its negative is.
REARRANGING = operators(lambda op: op.moves in ("view", "permute", "expand")) | {aten.neg.default}
SLICES = operators(lambda op: op.moves == "part")
SPLITS = operators(lambda op: op.moves == "split")
LAYOUT = REARRANGING | SLICES | SPLITS
ADDING = frozenset({aten.add.Tensor})
JOINING = operators(lambda op: op.moves == "join")


@dataclass(frozen=True, slots=True)
class Site:
    """A position in the slice: its tensors, how they stand to the specification, and the sites it reads."""

    number: int
    position: Position
    node: Node
    tensors: Tensors
    state: State
    relation: GroupRelation | None
    operands: tuple[int, ...]

    @property
    def partial_axes(self) -> tuple[str, ...]:
        """The mesh axes over which the tensor is a partial sum."""
        return () if self.relation is None else partial_axes(self.relation)


def partial_axes(relation: GroupRelation) -> tuple[str, ...]:
    """The axes of a relation over which the ranks hold summands."""
    return tuple(axis for axis, place in (relation.placements or {}).items() if place.kind == "partial")


def state_of(relation: GroupRelation | None) -> State:
    """Whether tensors with this relation are whole or sharded, partial sums, or off the relation."""
    if relation is None or relation.placements is None:
        return "off"
    if partial_axes(relation):
        return "partial"
    return "whole" if relation.factor == 1 else "off"


def backward_slice(capture: Capture, proof: Proof, alignment: Alignment, promises: tuple[str, ...]) -> dict[int, Site]:
    """Every site that one of the promises rests on, by number, in execution order; declared preludes are taken for granted."""
    seen = reached(capture, alignment, promises)
    sites: dict[int, Site] = {}
    for number in sorted(seen):
        sites[number] = _in_context(_site(capture, proof, alignment, number, seen[number]), sites)
    return sites


def reached(capture: Capture, alignment: Alignment, promises: tuple[str, ...]) -> dict[int, tuple[int, ...]]:
    """The numbers of the positions that promises rest on, each with those that it reads."""
    wanted: list[int] = []
    producers = [graph.producers() for graph in capture.ranks]

    def visit(rank: int, var: Var) -> None:
        node = producers[rank].get(var)
        if node is not None and (
            capture.ranks[rank].nodes[node].phase != "prelude" or _written(capture.ranks[rank].nodes[node])
        ):
            wanted.append(alignment.number[rank, node])

    for name in promises:
        for rank, graph in enumerate(capture.ranks):
            if name in graph.outputs:
                visit(rank, graph.outputs[name])
    seen: dict[int, tuple[int, ...]] = {}
    sent = _sent(capture)
    while wanted:
        number = wanted.pop()
        if number in seen:
            continue
        start = len(wanted)
        for rank, index in alignment.positions[number].items():
            for operand in capture.ranks[rank].nodes[index].operands():
                visit(rank, operand)
            if (rank, index) in sent:
                other, operand = sent[rank, index]
                visit(other, operand)
        seen[number] = tuple(dict.fromkeys(wanted[start:]))
    return seen


def exposed(sites: Mapping[int, Site], readers: Mapping[int, tuple[int, ...]]) -> frozenset[int]:
    """The sites whose fault would show: from the outputs backward, not past a tensor that is what the specification computes."""
    found: set[int] = set()
    waiting = [number for number in sites if not readers.get(number)]
    while waiting:
        number = waiting.pop()
        if number not in found:
            found.add(number)
            if sites[number].state != "whole":
                waiting.extend(operand for operand in sites[number].operands if operand in sites)
    return frozenset(found)


def _sent(capture: Capture) -> dict[tuple[int, int], tuple[int, Var]]:
    """For every receive, by rank and node, the rank and the tensor that it gets."""
    if not any(node.op == gg.recv for graph in capture.ranks for node in graph.nodes):
        return {}
    found = {}
    for call in join(capture.ranks).collectives:
        if call.kind == gg.send and len(call.nodes) == 2:
            source, target = call.group
            tensor = next(capture.ranks[source].nodes[call.nodes[source]].operands())
            found[target, call.nodes[target]] = (source, tensor)
    return found


def _in_context(site: Site, sites: dict[int, Site]) -> Site:
    """A part of a related tensor is related, though no tensor of the specification may be that part."""
    states = {sites[number].state for number in site.operands if number in sites}
    if site.state == "off" and site.node.op == gg.all_gather and states <= {"whole"}:
        return replace(site, state="whole")
    if site.state != "off" or site.node.op not in LAYOUT:
        return site
    return replace(site, state="off" if "off" in states else "whole")


def _written(node: Node) -> bool:
    """Whether user code did it: a loader, or a function that shards inputs; not our own reading of a declaration."""
    return node.stack >= 0


def _site(capture: Capture, proof: Proof, alignment: Alignment, number: int, operands: tuple[int, ...]) -> Site:
    position = alignment.positions[number]
    rank = min(position)
    tensors = outputs_of(capture, position)
    relation = proof.group(tensors) if tensors else None
    node = capture.ranks[rank].nodes[position[rank]]
    state = state_of(relation)
    if relation is None and tensors and node.op not in JOINING | LAYOUT and proof.on_relation(tensors):
        state = "whole"  # a micro-batch, a block, what only some ranks compute
    if state == "whole" and node.op in SPLITS and not _all_related(capture, proof, position):
        state = "off"
    return Site(number, position, node, tensors, state, relation, operands)


def _all_related(capture: Capture, proof: Proof, position: Position) -> bool:
    """Whether every part that a tensor is split into is related: only the sum of some of them may have been reduced."""
    parts = max(len(capture.ranks[rank].nodes[index].outs) for rank, index in position.items())
    others = [outputs_of(capture, position, slot) for slot in range(1, parts)]
    return all(state_of(proof.group(tensors)) == "whole" or proof.on_relation(tensors) for tensors in others)
