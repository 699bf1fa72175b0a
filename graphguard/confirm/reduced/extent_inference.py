"""Every equation between the extents of a program: rules for its operators, definitions for its collectives."""

from __future__ import annotations

import torch

# Importing a module of rules registers them.
from graphguard.confirm.reduced import extent_layout, extent_models
from graphguard.confirm.reduced.extent_trials import tried
from graphguard.confirm.reduced.extents import RULES, Facts, Program
from graphguard.ir import Node
from graphguard.ir.graph import COLLECTIVES
from graphguard.ir.joining import Joined, JoinedCall
from graphguard.ops import COLLECTIVE, linked

RULE_MODULES = (extent_layout, extent_models)


def infer(program: Program, joined: Joined) -> None:
    """State every equation of a program."""
    for index, graph in enumerate(program.graphs):
        for number, node in enumerate(graph.nodes):
            if node.op not in COLLECTIVES:
                _infer_node(program, index, number, node)
    for step in joined.order:
        if isinstance(step, JoinedCall):
            _infer_collective(program, step)


def _infer_node(program: Program, index: int, number: int, node: Node) -> None:
    facts = Facts(program, index, node)
    rule = RULES.get(node.op.split(".")[1]) if node.op.startswith(("aten.", "gg.", "peer.")) else None
    if rule is None and pointwise(node.op):
        rule = extent_layout.elementwise
    rewrite = (rule or tried)(facts)
    if rewrite is not None:
        program.rewrites[index, number] = rewrite


def pointwise(op: str) -> bool:
    """Whether torch marks an operator as elementwise."""
    namespace, _, rest = op.partition(".")
    name, _, overload = rest.partition(".")
    if op == "peer.dropout":
        return True
    if namespace != "aten":
        return False
    packet = getattr(torch.ops.aten, name, None)
    found = getattr(packet, overload or "default", None)
    return found is not None and torch.Tag.pointwise in found.tags


def _infer_collective(program: Program, call: JoinedCall) -> None:
    """Every member's tensors stand in the relation that the collective defines."""
    facts = [Facts(program, rank + 1, program.graphs[rank + 1].nodes[call.nodes[rank]]) for rank in call.group]
    root = COLLECTIVE[call.kind].root(facts[0].node.args, call.group)
    for pair in linked(call.kind, len(facts), root):
        (one, a), (other, b) = ((facts[place.member], place.of(facts[place.member].node)) for place in pair)
        for mine, theirs in zip(one.dims(a), other.dims(b), strict=True):
            program.scales.same(mine, theirs)
        if one.indexes(a):
            program.scales.window(one.values(a), 0, other.values(b))
