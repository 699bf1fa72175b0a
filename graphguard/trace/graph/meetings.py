"""What holds ranks up besides values: groups that they make together, and waiting for collectives that they called before.

A graph of values has neither.  They are recorded beside it, as the nodes that :mod:`graphguard.ir.joining` takes for *stops*, and looked at once: a job that runs with every collective waited for
where it is called, as graphs have it, runs; one that does not may run because its ranks wait later, and then its graphs say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from graphguard.ir.capture import Trouble
from graphguard.ir.graph import ASYNCHRONOUS, COLLECTIVES, COMMUNICATOR, Graph, Node, Var
from graphguard.ir.joining import WAIT, communicator_of, group_of, join
from graphguard.ops import MESSAGES

Stop: TypeAlias = tuple[int, Node]
"""A node that is none of the graph's, and how many of the graph's stand before it."""

POSTED = "gg.posted"
"""A functional collective is called: its result waits for it when it is read first."""

_STOPS = frozenset((WAIT, POSTED, "gg.new_group", "gg.split_group"))


def results(nodes: Iterable[Node]) -> tuple[Var, ...]:
    """What collectives among these nodes give."""
    return tuple(out for node in nodes if node.op in COLLECTIVES and node.op not in MESSAGES for out in node.outs)


def without_stops(graph: Graph) -> tuple[Graph, tuple[Stop, ...]]:
    """A graph, and the stops that were recorded among its nodes."""
    nodes: list[Node] = []
    stops: list[Stop] = []
    for node in graph.nodes:
        if node.op in _STOPS:
            stops.append((len(nodes), node))
        else:
            nodes.append(node)
    return (replace(graph, nodes=tuple(nodes)), tuple(stops)) if stops else (graph, ())


def parted(graphs: tuple[Graph, ...]) -> tuple[tuple[Graph, ...], list[tuple[Stop, ...]]]:
    """Graphs, and the stops that stand among their nodes."""
    parts = [without_stops(graph) for graph in graphs]
    return tuple(graph for graph, _ in parts), [stops for _, stops in parts]


def in_step(
    graphs: tuple[Graph, ...], stops: Sequence[tuple[Stop, ...]]
) -> tuple[tuple[Graph, ...], tuple[Trouble, ...]]:
    """The graphs of all ranks, whose collectives are asynchronous where that alone lets them run together; and why they do not run, where they do not."""
    if all(stop.op == POSTED for each in stops for _, stop in each) and _is_in_one_order(graphs):
        return graphs, join(graphs).mismatches
    forming = [tuple(stop for stop in each if stop[1].op not in (WAIT, POSTED)) for each in stops]
    if not join(among(graphs, forming)).mismatches:
        return graphs, ()
    posted = tuple(_posted(graph, each) for graph, each in zip(graphs, stops, strict=True))
    waiting = [_waiting_where_read(graph, each) for graph, each in zip(graphs, stops, strict=True)]
    mismatches = join(among(posted, waiting)).mismatches
    return (graphs, mismatches) if mismatches else (posted, ())


def _is_in_one_order(graphs: tuple[Graph, ...]) -> bool:
    """Whether no rank calls collectives on two groups, of which another could call the second first."""
    return all(len({communicator_of(node) for node in graph.nodes if node.op in COLLECTIVES}) < 2 for graph in graphs)


def _waiting_where_read(graph: Graph, stops: tuple[Stop, ...]) -> tuple[Stop, ...]:
    """The stops, with a wait for every functional collective before the first call that reads its result."""
    if not any(stop.op == POSTED for _, stop in stops):
        return stops
    first: dict[Var, int] = {}
    for place, node in enumerate(graph.nodes):
        for var in node.operands():
            first.setdefault(var, place)
    waits = [(first[var], replace(stop, op=WAIT, args=(var,))) for _, stop in stops if stop.op == POSTED for var in stop.reads if var in first]  # fmt: skip
    return tuple(sorted((*(each for each in stops if each[1].op != POSTED), *waits), key=lambda stop: stop[0]))


def among(graphs: tuple[Graph, ...], stops: Sequence[tuple[Stop, ...]]) -> tuple[Graph, ...]:
    """Graphs with their stops among their nodes."""
    return tuple(_merged(graph, each) if each else graph for graph, each in zip(graphs, stops, strict=True))


def _merged(graph: Graph, stops: tuple[Stop, ...]) -> Graph:
    nodes: list[Node] = []
    start = 0
    for place, stop in stops:
        nodes += graph.nodes[start:place]
        nodes.append(stop)
        start = place
    return replace(graph, nodes=(*nodes, *graph.nodes[start:]))


def _posted(graph: Graph, stops: tuple[Stop, ...]) -> Graph:
    """A graph whose collectives that are waited for later are asynchronous."""
    later = {var for _, stop in stops if stop.op in (WAIT, POSTED) for var in stop.reads}
    nodes = [
        replace(node, kwargs={**node.kwargs, ASYNCHRONOUS: True})
        if node.op in COLLECTIVES and not later.isdisjoint(node.outs)
        else node
        for node in graph.nodes
    ]
    return replace(graph, nodes=tuple(nodes))


def plainly_named(graphs: tuple[Graph, ...]) -> tuple[Graph, ...]:
    """The graphs with groups named among those of the same ranks only where the job uses several such."""
    used: dict[tuple[int, ...], set[object]] = {}
    for graph in graphs:
        for node in graph.nodes:
            if node.op in COLLECTIVES:
                used.setdefault(group_of(node), set()).add(node.kwargs.get(COMMUNICATOR))
    single = {group for group, numbers in used.items() if len(numbers) == 1 and None not in numbers}
    return tuple(_unnamed(graph, single) for graph in graphs) if single else graphs


def _unnamed(graph: Graph, single: set[tuple[int, ...]]) -> Graph:
    return replace(
        graph,
        nodes=tuple(
            _first(node) if node.op in COLLECTIVES and group_of(node) in single else node for node in graph.nodes
        ),
    )


def _first(node: Node) -> Node:
    return replace(node, kwargs={name: value for name, value in node.kwargs.items() if name != COMMUNICATOR})
