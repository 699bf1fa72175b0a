"""Which parameter or input a tensor is about: the one that it is computed from alone, or whose gradient it is."""

from __future__ import annotations

from graphguard.ir import Graph, Node, Var
from graphguard.ops import operators
from graphguard.repair.graph.slices import ADDING, REARRANGING

_CARRYING = REARRANGING | operators(lambda op: op.symbol in ("*", "/")) | ADDING
_STEPS = 4  # operators between a tensor and the gradient that it is computed from


def differentiated_leaf(graph: Graph, node: Node, var: Var | None = None) -> str:
    """The one parameter or input that the differentiated call reads and that is as large as the gradient; an empty text where it is not seen.

    ``var``: which result of the node the gradient is, by default the first.  Of several that are as large it is the operand in this place.
    """
    named, producers, found = {**graph.inputs, **graph.labels}, graph.producers(), dict[str, int]()
    var = node.outs[0] if var is None else var
    for call in graph.nodes if node.forward >= 0 else ():
        if call.phase != "forward" or call.stack != node.forward:
            continue
        for place, operand in enumerate(call.operands()):
            while operand not in named and operand in producers and graph.nodes[producers[operand]].op in REARRANGING:
                operand = next(graph.nodes[producers[operand]].operands())
            if operand in named and _sizes(graph, operand) == _sizes(graph, var):
                found[named[operand]] = place
    if len(found) > 1 and len(node.outs) > 1:
        found = {name: place for name, place in found.items() if place == node.outs.index(var)}
    return next(iter(found)) if len(found) == 1 else ""


def leaf_behind(graph: Graph, var: Var) -> str:
    """The parameter or input that a tensor, or the gradient that it is computed from or that passes add up to it, is of; an empty text where it is not seen."""
    named, producers, found = {**graph.inputs, **graph.labels}, graph.producers(), set()
    waiting = [(var, _STEPS)]
    for var, steps in waiting:
        node = graph.nodes[producers[var]] if var in producers else None
        leaf = named.get(var, "")
        if not leaf and node is not None and node.phase == "backward":
            leaf = differentiated_leaf(graph, node, var)
        operands = set(node.operands()) if node is not None else set()
        adds = node is not None and node.op in ADDING and node.phase == "backward"
        if leaf or not steps or not (adds or len(operands) == 1):
            found.add(leaf)
        else:
            waiting += [(operand, steps if adds else steps - 1) for operand in operands]
    return found.pop() if len(found) == 1 else ""


def gradient_ahead(graph: Graph, var: Var) -> str:
    """The one parameter or input whose gradient, as it is handed out, a tensor is a summand of, or a multiple; else the one that it changes; an empty text for none or several."""
    held = {var}
    for node in graph.nodes:
        if node.op in _CARRYING and held.intersection(node.operands()):
            held.update(node.outs)
    found = {name[5:-1] for name, out in graph.outputs.items() if out in held and name.startswith("grad(")}
    return found.pop() if len(found) == 1 else _changed_leaf(graph, var)


def _changed_leaf(graph: Graph, var: Var) -> str:
    """The one parameter that is read together with a gradient, or what is made of that in its shape, such as a momentum: it is what a step changes by it."""
    named, held, found = {**graph.inputs, **graph.labels}, {var}, set[str]()
    for node in graph.nodes:
        if held.isdisjoint(node.reads):
            continue
        kinds = [graph.types[each] for each in node.reads if each in held]
        read = {named[each] for each in node.reads if each in named and graph.types[each] in kinds}
        found |= read
        if not read and (node.op in REARRANGING or graph.types.get(next(iter(node.outs), var)) in kinds):
            held.update(node.outs)
    return found.pop() if len(found) == 1 else ""


def _sizes(graph: Graph, var: Var) -> list[str]:
    return sorted(str(size) for size in graph.types[var].shape if size != 1)
