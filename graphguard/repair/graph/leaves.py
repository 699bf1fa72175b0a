"""Which parameter or input a tensor is about: the one that it is computed from alone, or whose gradient it is."""

from __future__ import annotations

from graphguard.ir import Graph, Node, Var
from graphguard.ops import aten, operators
from graphguard.repair.graph.slices import REARRANGING

_ADDING = {aten.add.Tensor}
_CARRYING = REARRANGING | operators(lambda op: op.symbol in ("*", "/")) | _ADDING
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
    """The parameter or input that a tensor, or the gradient that it is computed from or that passes add up to it, is of; an empty text where it is not seen."""
    named, producers, found = {**graph.inputs, **graph.labels}, graph.producers(), set()
    waiting = [(var, _STEPS)]
    for var, steps in waiting:
        node = graph.nodes[producers[var]] if var in producers else None
        leaf = named.get(var, "")
        if not leaf and node is not None and node.phase == "backward":
            leaf = differentiated_leaf(graph, node)
        operands = set(node.operands()) if node is not None else set()
        adds = node is not None and node.op in _ADDING and node.phase == "backward"
        if leaf or not steps or not (adds or len(operands) == 1):
            found.add(leaf)
        else:
            waiting += [(operand, steps if adds else steps - 1) for operand in operands]
    return found.pop() if len(found) == 1 else ""


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
