"""What a backward pass computes once more to differentiate it: activations that a forward pass did not keep."""

from __future__ import annotations

from graphguard.ir import Graph, Node


def applied_for(graph: Graph, node: Node) -> frozenset[int]:
    """The stacks of the forward calls for which a backward pass computed anew what a node differentiates; none for any other node."""
    anew = (each.forward for each in graph.nodes if each.stack == node.forward >= 0 and each.phase == "backward")
    return frozenset(stack for stack in anew if stack >= 0)
