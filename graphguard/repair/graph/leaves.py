"""Which parameter or input a tensor is about: the one that it is computed from alone, or whose gradient it is."""

from __future__ import annotations

from graphguard.ir import Graph, Node, Var
from graphguard.ops import aten, operators
from graphguard.repair.graph.slices import REARRANGING

_CARRYING = REARRANGING | operators(lambda op: op.symbol in ("*", "/")) | {aten.add.Tensor}
_STEPS = 4  # operators between a tensor and the gradient that it is computed from


def differentiated_leaf(graph: Graph, node: Node) -> str:
    """The one parameter or input that the differentiated call reads and that is as large as the gradient; an empty text where it is not seen."""
    named, producers, found = {**graph.inputs, **graph.labels}, graph.producers(), set()
    for call in graph.nodes if node.forward >= 0 else ():
        if call.phase != "forward" or call.stack != node.forward:
            continue
        for var in call.operands():
            while var not in named and var in producers and graph.nodes[producers[var]].op in REARRANGING:
                var = next(graph.nodes[producers[var]].operands())
            if var in named and _sizes(graph, var) == _sizes(graph, node.outs[0]):
                found.add(named[var])
    return found.pop() if len(found) == 1 else ""


def leaf_behind(graph: Graph, var: Var) -> str:
    """The parameter or input that a tensor, or the gradient that it is computed from, is of; an empty text where it is not seen."""
    named, producers = {**graph.inputs, **graph.labels}, graph.producers()
    for _ in range(_STEPS):
        if var in named:
            return named[var]
        index = producers.get(var)
        if index is None:
            return ""
        node = graph.nodes[index]
        if node.phase == "backward" and (leaf := differentiated_leaf(graph, node)):
            return leaf
        operands = set(node.operands())
        if len(operands) != 1:
            return ""
        var = operands.pop()
    return ""


def gradient_ahead(graph: Graph, var: Var) -> str:
    """The one parameter or input whose gradient, as it is handed out, a tensor is a summand of, or a multiple; an empty text for none or several."""
    held = {var}
    for node in graph.nodes:
        if node.op in _CARRYING and held.intersection(node.operands()):
            held.update(node.outs)
    found = {name[5:-1] for name, out in graph.outputs.items() if out in held and name.startswith("grad(")}
    return found.pop() if len(found) == 1 else ""


def _sizes(graph: Graph, var: Var) -> list[str]:
    return sorted(str(size) for size in graph.types[var].shape if size != 1)
