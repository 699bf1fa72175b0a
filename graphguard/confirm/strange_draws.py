"""Random draws of the ranks that the specification has no like of: a part's own, another shape's, another generator's, or behind other draws.

Which numbers such a draw gives beside those of the specification is nobody's promise, so a value that moves with them refutes nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from graphguard.ir import Capture, Graph, Node
from graphguard.ir.draws import ordinal


def redrawn(capture: Capture) -> tuple[Graph, ...] | None:
    """The ranks with other numbers for every such draw, the same for the same draw; None where there is none."""
    if capture.spec is None:
        return None
    known = {like for node in capture.spec.nodes for like in _likes(capture.spec, node)}
    ranks = tuple(_moved(graph, known) for graph in capture.ranks)
    return None if all(new is old for new, old in zip(ranks, capture.ranks, strict=True)) else ranks


def _moved(graph: Graph, known: set[Hashable]) -> Graph:
    nodes = tuple(_again(node) if _is_strange(graph, node, known) else node for node in graph.nodes)
    return (
        graph if all(new is old for new, old in zip(nodes, graph.nodes, strict=True)) else replace(graph, nodes=nodes)
    )


def _is_strange(graph: Graph, node: Node, known: set[Hashable]) -> bool:
    """Whether the specification draws no such shape from that generator, or does it behind as many draws, but others."""
    likes = _likes(graph, node)
    if not likes:
        return False
    shape, place, name = likes
    return shape not in known or (name not in known and place in known)


def _likes(graph: Graph, node: Node) -> tuple[Hashable, ...]:
    """A draw by its generator and shape, by how many draws came before it as well, and by which."""
    if node.draw is None:
        return ()
    (stream, position), shape = node.draw, tuple(graph.types[node.outs[0]].shape)
    return (stream, shape), (stream, shape, ordinal(position)), (node.draw, shape)


def _again(node: Node) -> Node:
    assert node.draw is not None
    return replace(node, draw=(f"{node.draw[0]} again", node.draw[1]))


def reason_of(names: Sequence[str]) -> str:
    """Why there is nothing to compare."""
    return (
        f"'{names[0]}' rests on random numbers of a shape or a generator that the specification does not draw, or behind other draws, so values cannot be compared; "
        "draw the specification's shape and take this rank's part, or switch them off in both programs"
    )
