"""Leaves out what nobody reads of how programs come by their inputs: initial values that were overwritten, and the collectives that spread them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import compress

from graphguard.ir.graph import COLLECTIVES, Graph, Var
from graphguard.ir.joining import JoinedCall, join
from graphguard.ops import REDUCTIONS


def prune_prelude(ranks: tuple[Graph, ...], read: Collection[str] = ()) -> tuple[Graph, ...]:
    """Leave out what nobody reads of the ranks' preludes: initial values that were overwritten, and the collectives that spread them.

    ``read``: the labels that are read besides, such as those of parameters whose layout a gradient must have, in use or not.

    A collective of the prelude goes only if no member reads its result, so the ranks still agree.
    """
    preludes = [[node for node in graph.nodes if node.phase == "prelude"] for graph in ranks]
    if not any(preludes):
        return ranks
    if any(node.op in COLLECTIVES for nodes in preludes for node in nodes):
        return _pruned_together(ranks, read)
    pruned: list[Graph] = []
    known: dict[int, tuple[Graph, set[Var], list[bool], Graph]] = {}  # the last of the graphs that have these types
    for graph in ranks:
        ends = _ends(graph, read)
        found = known.get(id(graph.types))
        if found is not None and found[1] == ends and _read_alike(found[0], graph):
            _, _, keep, like = found
            pruned.append(_kept(graph, keep, like))
        else:
            keep = _needed(graph, ends)
            pruned.append(_kept(graph, keep))
            known[id(graph.types)] = graph, ends, keep, pruned[-1]
    return tuple(pruned)


def _read_alike(one: Graph, other: Graph) -> bool:
    """Whether two graphs' calls read and make the same variables, as those of ranks do that were inferred from one that was recorded."""
    return (
        one.types is other.types
        and one.constants.keys() == other.constants.keys()
        and one.inputs.keys() == other.inputs.keys()
        and one.labels.keys() == other.labels.keys()
        and len(one.nodes) == len(other.nodes)
        and all(
            a is b or (a.phase == b.phase and a.outs == b.outs and a.reads == b.reads)
            for a, b in zip(one.nodes, other.nodes, strict=True)
        )
    )


def _ends(graph: Graph, read: Collection[str]) -> set[Var]:
    """What is read of a graph when all its calls were made."""
    named = (var for var, name in graph.labels.items() if name in read)
    return {*graph.outputs.values(), *graph.symbols.values(), *named}


def prune_to_outputs(ranks: tuple[Graph, ...]) -> tuple[Graph, ...]:
    """Leave out all that no output of any rank is computed of; a collective stays for all its members, and one that reduces what stays is kept: it may have been meant to be read."""
    alive = [[False] * len(graph.nodes) for graph in ranks]
    ends = [_ends(graph, ()) for graph in ranks]
    _spread(ranks, alive, [{*each} for each in ends])
    known = [{*graph.inputs, *graph.constants} for graph in ranks]
    for graph, kept, made in zip(ranks, alive, known, strict=True):
        made.update(var for node, one in zip(graph.nodes, kept, strict=True) if one for var in node.outs)
    for call in join(ranks).collectives:
        if call.kind in REDUCTIONS and all(
            known[rank].issuperset(ranks[rank].nodes[at].reads) for rank, at in call.nodes.items()
        ):
            for rank, at in call.nodes.items():
                alive[rank][at] = True
    kept_graphs = (_kept(graph, one) for graph, one in zip(ranks, alive, strict=True))
    return tuple(map(_with_inputs_read, kept_graphs))


def _with_inputs_read(graph: Graph) -> Graph:
    """A graph without inputs, and their labels, that nothing reads."""
    read = {var for node in graph.nodes for var in node.reads} | _ends(graph, ())
    gone = graph.inputs.keys() - read
    return replace(
        graph,
        inputs={var: name for var, name in graph.inputs.items() if var not in gone},
        types={var: kind for var, kind in graph.types.items() if var not in gone},
        labels={var: name for var, name in graph.labels.items() if var not in gone},
    )


def _pruned_together(ranks: tuple[Graph, ...], read: Collection[str]) -> tuple[Graph, ...]:
    made = [{out for node in graph.nodes if node.phase == "prelude" for out in node.outs} for graph in ranks]
    wanted = [_read_later(graph, own, read) for graph, own in zip(ranks, made, strict=True)]
    return _pruned(ranks, [[node.phase != "prelude" for node in graph.nodes] for graph in ranks], wanted)


def _pruned(ranks: tuple[Graph, ...], alive: list[list[bool]], wanted: list[set[Var]]) -> tuple[Graph, ...]:
    """Graphs with the calls that are ``alive``, and those that these and what is ``wanted`` need."""
    seen = _spread(ranks, alive, wanted)
    # what a hang cut off stays
    keep = [[kept or not met for kept, met in zip(*both, strict=True)] for both in zip(alive, seen, strict=True)]
    return tuple(_kept(graph, one) for graph, one in zip(ranks, keep, strict=True))


def _spread(ranks: tuple[Graph, ...], alive: list[list[bool]], wanted: list[set[Var]]) -> list[list[bool]]:
    """Mark as ``alive`` what is needed as well; returns which calls were come to."""
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
    return seen


def _read_later(graph: Graph, made: set[Var], read: Collection[str]) -> set[Var]:
    """Of what the prelude makes: what goes on behind it."""
    wanted = made & _ends(graph, read)
    if made:
        wanted.update(var for node in graph.nodes if node.phase != "prelude" for var in node.reads if var in made)
    return wanted


def prune_alone(graph: Graph) -> Graph:
    """As :func:`prune_prelude` for a program that runs by itself: what building the other program left in it is dropped, collectives included."""
    return _kept(graph, _needed(graph, _ends(graph, ())))


def _needed(graph: Graph, ends: set[Var]) -> list[bool]:
    """Which calls of a graph are read, or are none of its prelude."""
    wanted, keep = {*ends}, [False] * len(graph.nodes)
    for index in reversed(range(len(graph.nodes))):
        node = graph.nodes[index]
        keep[index] = node.phase != "prelude" or not wanted.isdisjoint(node.outs)
        if keep[index]:
            wanted.update(node.reads)
    return keep


def _kept(graph: Graph, keep: list[bool], like: Graph | None = None) -> Graph:
    """A graph with these calls alone, and what they need; ``like``: one of the same variables, of which the same was kept."""
    if all(keep):
        return graph
    nodes = tuple(compress(graph.nodes, keep))
    if like is not None:
        return replace(
            graph,
            nodes=nodes,
            constants={var: graph.constants[var] for var in like.constants},
            types=like.types,
            labels={var: graph.labels[var] for var in like.labels},
        )
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
