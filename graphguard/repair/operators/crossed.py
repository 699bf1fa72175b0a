"""Calls that stand at one place and are made on different groups of the same ranks: what each rank gives there meets what another gives elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from graphguard.ir import Node
from graphguard.ir.graph import COLLECTIVES, COMMUNICATOR
from graphguard.ir.joining import group_of
from graphguard.repair.graph.edits import OtherCalls
from graphguard.repair.graph.neighbours import Guess, Neighbours
from graphguard.repair.graph.slices import Site


def crossed(around: Neighbours) -> Iterator[Guess]:
    """One guess for all such places: every rank calls on the group that the first of its members calls on there."""
    calls: dict[int, dict[int, tuple[Node, ...]]] = {}
    first: tuple[Site, str] | None = None
    for site in around.sites.values():
        for rank, (node, meant) in _elsewhere(site, around).items():
            calls.setdefault(rank, {})[site.position[rank]] = (meant,)
            first = first or (site, _told(rank, node))
    if first is not None:
        site, told = first
        yield "wrong-group", OtherCalls(calls, {rank: {} for rank in calls}, told), site, 0


def _elsewhere(site: Site, around: Neighbours) -> dict[int, tuple[Node, Node]]:
    """The ranks that call on another group than the first member does, with their calls and those that are meant."""
    if site.node.op not in COLLECTIVES:
        return {}
    nodes = {rank: around.capture.ranks[rank].nodes[index] for rank, index in sorted(site.position.items())}
    found = {}
    for rank, node in nodes.items():
        leader = nodes.get(min(group_of(node)), node)
        if group_of(leader) == group_of(node) and leader.kwargs.get(COMMUNICATOR) != node.kwargs.get(COMMUNICATOR):
            rest = {name: value for name, value in node.kwargs.items() if name != COMMUNICATOR}
            which = {COMMUNICATOR: leader.kwargs[COMMUNICATOR]} if COMMUNICATOR in leader.kwargs else {}
            found[rank] = node, replace(node, kwargs={**rest, **which})
    return found


def _told(rank: int, node: Node) -> str:
    group = group_of(node)
    op, members = node.op.removeprefix("gg."), ", ".join(map(str, group))
    return f"'{{name}}' meets another tensor: rank {min(group)} calls {op} here on one group of ranks {members}, rank {rank} on another"
