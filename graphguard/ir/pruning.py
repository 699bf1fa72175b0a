"""Leaves out what nobody reads of how programs come by their inputs: initial values that were overwritten, and the collectives that spread them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from graphguard.ir.graph import Graph
from graphguard.ir.joining import JoinedCall, join


def prune_prelude(ranks: tuple[Graph, ...], read: Collection[str] = ()) -> tuple[Graph, ...]:
    """Leave out what nobody reads of the ranks' preludes: initial values that were overwritten, and the collectives that spread them.

    ``read``: the labels that are read besides, such as those of parameters whose layout a gradient must have, in use or not.

    A collective of the prelude goes only if no member reads its result, so the ranks still agree.
    """
    joined = join(ranks)
    alive = [[node.phase != "prelude" for node in graph.nodes] for graph in ranks]
    wanted = [set(graph.outputs.values()) | set(graph.symbols.values()) for graph in ranks]
    for named, graph in zip(wanted, ranks, strict=True):
        named.update(var for var, name in graph.labels.items() if name in read)
    seen = set()
    for step in reversed(joined.order):
        calls = list(step.nodes.items()) if isinstance(step, JoinedCall) else [step]
        seen.update(calls)
        if any(alive[rank][index] or wanted[rank].intersection(ranks[rank].nodes[index].outs) for rank, index in calls):
            for rank, index in calls:
                alive[rank][index] = True
                wanted[rank].update(ranks[rank].nodes[index].operands())
    for rank, graph in enumerate(ranks):  # what a hang cut off stays
        for index in range(len(graph.nodes)):
            alive[rank][index] |= (rank, index) not in seen
    return tuple(_kept(graph, keep) for graph, keep in zip(ranks, alive, strict=True))


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
    nodes = tuple(node for node, kept in zip(graph.nodes, keep, strict=True) if kept)
    used = {var for node in nodes for var in (*node.operands(), *node.outs)} | set(graph.outputs.values())
    used |= set(graph.symbols.values()) | set(graph.inputs)
    return replace(
        graph,
        nodes=nodes,
        constants={var: constant for var, constant in graph.constants.items() if var in used},
        types={var: kind for var, kind in graph.types.items() if var in used},
        labels={var: name for var, name in graph.labels.items() if var in used},
    )
