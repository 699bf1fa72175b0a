"""Which tensors of the ranks are one of the specification's, whole or in parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from graphguard.ir import Capture, Var
from graphguard.refine.outcome import SPECIFICATION
from graphguard.refine.proving.proof import Proof
from graphguard.repair.graph.edits import Tensors
from graphguard.repair.graph.slices import SPLITS, state_of

_HOLDERS: Final = 3  # that are looked at


def held(var: Var, proof: Proof) -> Iterator[Tensors]:
    """The ranks' tensors that hold one of the specification's, those of splits last, of which every rank reads another part."""
    yield from (tensors for tensors, _ in proof.holders(var)[:_HOLDERS])
    yield from (tensors for tensors in _parts(proof.capture) if holds_operand(proof, var, tensors))


def _parts(capture: Capture) -> Iterator[Tensors]:
    """The parts of splits that the ranks read, where they do so by the same calls."""
    first, *others = capture.ranks
    if any([node.op for node in graph.nodes] != [node.op for node in first.nodes] for graph in others):
        return
    splits = [index for index, node in enumerate(first.nodes) if node.op in SPLITS]
    for split in splits:
        given = [set(graph.nodes[split].outs) for graph in capture.ranks]
        for index in range(split + 1, len(first.nodes)):
            read = [given[rank].intersection(graph.nodes[index].operands()) for rank, graph in enumerate(capture.ranks)]
            if all(len(parts) == 1 for parts in read):
                yield {rank: parts.pop() for rank, parts in enumerate(read)}
                break


def holds_operand(proof: Proof, meant: Var, operand: Tensors) -> bool:
    """Whether the ranks' tensors are a tensor of the specification, whole or in parts; a split gives every rank another one of its results."""
    if any(all(group.get(rank) == var for rank, var in operand.items()) for group, _ in proof.holders(meant)):
        return True
    found = proof.group(operand)
    if found is None or state_of(found) != "whole":
        return False
    target, wanted = proof.value(SPECIFICATION, found.target), proof.value(SPECIFICATION, meant)
    return target is not None and wanted is not None and target.key() == wanted.key()
