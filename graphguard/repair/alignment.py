"""Which node of one rank does the same as which node of another.

Ranks usually run the same source, so nodes are matched by where they were called from (the whole stack, the forward stack for
backward nodes), by operator and by how often that happened before.  A rank that took another branch has no partner there.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from graphguard.ir import Capture, Frame, Var

FAMILIES = {"aten.addmm.default": "aten.mm.default", "aten.baddbmm.default": "aten.bmm.default"}
"""Operators that one source line becomes on some ranks only: a product with a bias that other ranks leave out."""
Position = dict[int, int]
"""A node index for every rank that has one."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """The positions of a program and, for every node of every rank, the number of its position."""

    positions: tuple[Position, ...]
    number: dict[tuple[int, int], int]

    def of(self, rank: int, node: int) -> Position:
        """The position of a node."""
        return self.positions[self.number[rank, node]]


def align(capture: Capture) -> Alignment:
    """Match the nodes of all ranks, in order of first appearance."""
    numbers: dict[tuple[object, ...], int] = {}
    positions: list[Position] = []
    number: dict[tuple[int, int], int] = {}
    for rank, graph in enumerate(capture.ranks):
        stacks = [graph.stack_of(index) for index in range(len(graph.stacks))]
        seen: Counter[tuple[object, ...]] = Counter()
        for index, node in enumerate(graph.nodes):
            place = (
                FAMILIES.get(node.op, node.op),
                node.phase,
                _stack(stacks, node.stack),
                _stack(stacks, node.forward),
            )
            key = (*place, seen[place])
            seen[place] += 1
            if key not in numbers:
                numbers[key] = len(positions)
                positions.append({})
            positions[numbers[key]][rank] = index
            number[rank, index] = numbers[key]
    return Alignment(tuple(positions), number)


def _stack(stacks: list[tuple[Frame, ...]], index: int) -> tuple[Frame, ...]:
    return () if index < 0 else stacks[index]


def outputs_of(capture: Capture, position: Position, slot: int = 0) -> dict[int, Var]:
    """The tensor that a position produces on every rank; ranks whose node has no such result are left out."""
    found = {}
    for rank, index in position.items():
        outs = capture.ranks[rank].nodes[index].outs
        if slot < len(outs):
            found[rank] = outs[slot]
    return found
