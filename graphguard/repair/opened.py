"""A specification in smaller steps, for diagnosis only: a product with a bias is a product and a sum.

A rank's partial product is a summand of the product alone, which a fused operator gives no name to.  The values are the same, and so is the place in the source.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from graphguard.ir import Capture, Graph, Node, TensorType, Var
from graphguard.refine.prove import Proof

_PRODUCTS = {"aten.addmm.default": "aten.mm.default", "aten.baddbmm.default": "aten.bmm.default"}


def opened(capture: Capture, proof: Proof) -> tuple[Capture, Proof]:
    """The capture with its specification opened, and the proof attempt on it; the same ones where there is nothing to open."""
    spec = capture.spec
    if spec is None or not any(_opens(node) for node in spec.nodes):
        return capture, proof
    again = proof.respecified(replace(capture, spec=_opened(spec)))
    same = again.failing == proof.failing  # an attempt that ran out of time explains nothing
    return (again.capture, again) if same else (capture, proof)


def _opens(node: Node) -> bool:
    return node.op in _PRODUCTS and not node.kwargs and len(node.args) == 3


def _opened(graph: Graph) -> Graph:
    types = dict(graph.types)
    nodes = tuple(new for node in graph.nodes for new in (_steps(node, types) if _opens(node) else (node,)))
    return replace(graph, nodes=nodes, types=types)


def _steps(node: Node, types: dict[Var, TensorType]) -> Iterator[Node]:
    bias, first, second = node.args
    product = Var(1 + max(var.id for var in types))
    types[product] = types[node.outs[0]]
    yield replace(node, op=_PRODUCTS[node.op], args=(first, second), outs=(product,))
    yield replace(node, op="aten.add.Tensor", args=(product, bias))
