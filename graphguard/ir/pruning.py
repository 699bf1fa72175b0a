"""Leaves out what nobody reads of how programs come by their inputs: initial values that were overwritten, and the collectives that spread them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import compress

from graphguard.ir.graph import Graph, Var
from graphguard.ir.joining import JoinedCall, join


def prune_prelude(ranks: tuple[Graph, ...], read: Collection[str] = ()) -> tuple[Graph, ...]:
    """Leave out what nobody reads of the ranks' preludes: initial values that were overwritten, and the collectives that spread them.

    ``read``: the labels that are read besides, such as those of parameters whose layout a gradient must have, in use or not.

    A collective of the prelude goes only if no member reads its result, so the ranks still agree.
    """
    made = [{out for node in graph.nodes if node.phase == "prelude" for out in node.outs} for graph in ranks]
    if not any(made):
        return ranks
    wanted = [_read_later(graph, own, read) for graph, own in zip(ranks, made, strict=True)]
    alive = [[node.phase != "prelude" for node in graph.nodes] for graph in ranks]
    seen = [[*one] for one in alive]
    for step in reversed(join(ranks).order):
        calls = list(step.nodes.items()) if isinstance(step, JoinedCall) else [step]
        if all(seen[rank][index] for rank, index in calls):
            continue
        for rank, index in calls:
            seen[rank][index] = True
        if any(alive[rank][index] or wanted[rank].intersection(ranks[rank].nodes[index].outs) for rank, index in calls):
            for rank, index in calls:
                alive[rank][index] = True
                wanted[rank].update(ranks[rank].nodes[index].reads)
    # what a hang cut off stays
    keep = [[kept or not met for kept, met in zip(*both, strict=True)] for both in zip(alive, seen, strict=True)]
    return tuple(_kept(graph, one) for graph, one in zip(ranks, keep, strict=True))


def _read_later(graph: Graph, made: set[Var], read: Collection[str]) -> set[Var]:
    """Of what the prelude makes: what goes on behind it."""
    named = {var for var, name in graph.labels.items() if name in read}
    wanted = made & {*graph.outputs.values(), *graph.symbols.values(), *named}
    if made:
        wanted.update(var for node in graph.nodes if node.phase != "prelude" for var in node.reads if var in made)
    return wanted


def prune_alone(graph: Graph) -> Graph:
    """As :func:`prune_prelude` for a program that runs by itself: what building the other program left in it is dropped, collectives included."""
    wanted = set(graph.outputs.values()) | set(graph.symbols.values())
    keep = [False] * len(graph.nodes)
    for index in reversed(range(len(graph.nodes))):
        node = graph.nodes[index]
        keep[index] = node.phase != "prelude" or bool(wanted.intersection(node.outs))
        if keep[index]:
            wanted.update(node.operands())
    return _kept(graph, keep)


def _kept(graph: Graph, keep: list[bool]) -> Graph:
    if all(keep):
        return graph
    nodes = tuple(compress(graph.nodes, keep))
    left = {var for node, kept in zip(graph.nodes, keep, strict=True) if not kept for var in (*node.reads, *node.outs)}
    left.difference_update(graph.outputs.values(), graph.symbols.values(), graph.inputs)
    left.difference_update(var for node in nodes for var in node.reads if var in left)
    left.difference_update(var for node in nodes for var in node.outs if var in left)
    return replace(
        graph,
        nodes=nodes,
        constants={var: constant for var, constant in graph.constants.items() if var not in left},
        types={var: kind for var, kind in graph.types.items() if var not in left},
        labels={var: name for var, name in graph.labels.items() if var not in left},
    )
