"""Which node of one rank does the same as which node of another.

Ranks usually run the same source, so nodes are matched by where they were called from (the whole stack, the forward stack for
backward nodes), by operator and by how often that happened before.  A rank that took another branch has no partner there.  What leaves a loop that some
ranks run through more often is matched by who reads it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass

from graphguard.ir import Capture, Frame, Node, Var
from graphguard.ops import OPERATORS

FAMILIES = {op: traits.product for op, traits in OPERATORS.items() if traits.product}
"""Operators that one source line becomes on some ranks only: a product with a bias that other ranks leave out."""
Position = dict[int, int]
"""A node index for every rank that has one."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """The positions of a program and, for every node of every rank, the number of its position."""

    positions: tuple[Position, ...]
    number: dict[tuple[int, int], int]


def family(node: Node) -> str:
    """The operator of a node, or the one whose place it takes on some ranks."""
    return FAMILIES.get(node.op, node.op)


def align(capture: Capture) -> Alignment:
    """Match the nodes of all ranks, in order of first appearance."""
    numbers: dict[tuple[int, int], int] = {}
    positions: list[Position] = []
    number: dict[tuple[int, int], int] = {}
    places: dict[Hashable, int] = {}
    calls: dict[tuple[int, int], int] = {}
    often: list[Counter[int]] = []
    for rank, graph in enumerate(capture.ranks):
        stacks = [graph.stack_of(index) for index in range(len(graph.stacks))]
        seen: Counter[int] = Counter()
        often.append(seen)
        for index, node in enumerate(graph.nodes):
            place = (
                family(node),
                node.phase,
                _stack(stacks, node.stack),
                _stack(stacks, node.forward),
            )
            call = calls[rank, index] = places.setdefault(place, len(places))
            key = (call, seen[call])
            seen[call] += 1
            if key not in numbers:
                numbers[key] = len(positions)
                positions.append({})
            positions[numbers[key]][rank] = index
            number[rank, index] = numbers[key]
    uneven = {call for seen in often for call in seen if any(other[call] != seen[call] for other in often)}
    if uneven:
        _match_what_leaves_loops(capture, positions, number, calls, uneven)
    return Alignment(tuple(positions), number)


def _match_what_leaves_loops(
    capture: Capture,
    positions: list[Position],
    number: dict[tuple[int, int], int],
    calls: Mapping[tuple[int, int], int],
    uneven: Collection[int],
) -> None:
    """Match what one call made last on every rank, where ranks made it differently often and one call elsewhere reads it."""
    producers = [graph.producers() for graph in capture.ranks]
    for position in [dict(each) for each in positions if len(each) > 1]:
        first, *others = sorted(position)
        for slot, var in enumerate(capture.ranks[first].nodes[position[first]].operands()):
            made = producers[first].get(var)
            if made is None or calls[first, made] not in uneven or calls[first, made] == calls[first, position[first]]:
                continue
            for rank in others:
                read = list(capture.ranks[rank].nodes[position[rank]].operands())
                index = producers[rank].get(read[slot]) if slot < len(read) else None
                if index is not None and calls[rank, index] == calls[first, made]:
                    _exchange(positions, number, (rank, index), number[first, made])


def _exchange(
    positions: list[Position], number: dict[tuple[int, int], int], moved: tuple[int, int], target: int
) -> None:
    """Put a rank's node at another position, and what the rank has there in its place."""
    rank, index = moved
    left, other = number[moved], positions[target].get(rank)
    if left == target:
        return
    positions[target][rank], number[moved] = index, target
    if other is None:
        del positions[left][rank]
    else:
        positions[left][rank], number[rank, other] = other, left


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
