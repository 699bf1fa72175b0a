"""A specification in smaller steps, for diagnosis only: a product with a bias is a product and a sum, and attention is what ranks that write it out compute.

A rank's partial product is a summand of the product alone, which a fused operator gives no name to.  The values are the same, and so is the place in the source.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from graphguard.ir import Capture, DType, Graph, Node, TensorType, Var
from graphguard.ir.graph import Arg
from graphguard.ir.validity import well_formed
from graphguard.ops import aten, traits_of
from graphguard.refine.proving.changes import respecified
from graphguard.refine.proving.proof import Proof

_SDPA = "gg.sdpa"


def opened(capture: Capture, proof: Proof) -> tuple[Capture, Proof]:
    """The capture with its specification opened, and the proof attempt on it; the same ones where there is nothing to open."""
    spec = capture.spec
    written_out = not any(node.op == _SDPA for graph in capture.ranks for node in graph.nodes)
    if spec is None or not any(_opens(node, spec, written_out) for node in spec.nodes):
        return capture, proof
    again = respecified(proof, well_formed(replace(capture, spec=_opened(spec, written_out))))
    same = again.failing == proof.failing  # an attempt that ran out of fuel explains nothing
    return (again.capture, again) if same else (capture, proof)


def _opens(node: Node, spec: Graph, written_out: bool) -> bool:
    if node.op == _SDPA:
        return written_out and _is_plain(node, spec)
    return bool(traits_of(node.op).product) and not node.kwargs and len(node.args) == 3


def _is_plain(node: Node, spec: Graph) -> bool:
    """Whether an attention drops nothing out, and has as many keys' heads as queries'."""
    query, key, value, mask, dropout, _, _, grouped = node.args
    shapes = [spec.types[each].shape for each in (query, key, value) if isinstance(each, Var)]
    alike = all(shape[:-2] == shapes[0][:-2] for shape in shapes)
    sizes = all(isinstance(size, int) for shape in shapes for size in shape)
    fits = not isinstance(mask, Var) or spec.types[mask].dtype == "bool"
    return alike and sizes and fits and not dropout and not grouped


def _opened(graph: Graph, written_out: bool) -> Graph:
    types = dict(graph.types)
    nodes: list[Node] = []
    for node in graph.nodes:
        if not _opens(node, graph, written_out):
            nodes.append(node)
        elif node.op == _SDPA:
            nodes.extend(_attention(node, types))
        else:
            nodes.extend(_steps(node, types))
    return replace(graph, nodes=tuple(nodes), types=types)


def _attention(node: Node, types: dict[Var, TensorType]) -> Iterator[Node]:
    """Scores, their factor, their mask, a softmax and a product."""
    query, key, value, mask, _, causal, scale, _ = node.args
    assert isinstance(query, Var)
    assert isinstance(key, Var)
    kind, turned = types[query], types[key]
    scores = replace(kind, shape=(*kind.shape[:-1], turned.shape[-2]))

    def made(op: str, args: tuple[Arg, ...], like: TensorType, **words: Arg) -> Node:
        new = Var(1 + max(var.id for var in types))
        types[new] = like
        return replace(node, op=op, args=args, kwargs=words, outs=(new,))

    last = made(aten.transpose.int, (key, -2, -1), replace(turned, shape=(*turned.shape[:-2], *turned.shape[:-3:-1])))
    yield last
    last = made(aten.matmul.default, (query, last.outs[0]), scores)
    yield last
    width = kind.shape[-1]
    assert isinstance(width, int)
    by = (aten.mul.Tensor, scale) if isinstance(scale, int | float) else (aten.div.Tensor, math.sqrt(width))
    last = made(by[0], (last.outs[0], by[1]), scores)
    yield last
    truths = replace(scores, shape=scores.shape[-2:], dtype="bool")
    if causal is True:
        full = made(aten.full.default, (truths.shape, True), truths, dtype=DType("bool"))
        yield full
        mask = Var(1 + max(var.id for var in types))
        types[mask] = truths
        yield replace(node, op=aten.tril.default, args=(full.outs[0],), kwargs={}, outs=(mask,))
    if isinstance(mask, Var):
        dropped = made(aten.logical_not.default, (mask,), types[mask])
        yield dropped
        last = made(aten.masked_fill.Scalar, (last.outs[0], dropped.outs[0], -math.inf), scores)
        yield last
    last = made(aten._softmax.default, (last.outs[0], -1, False), scores)
    yield last
    yield replace(node, op=aten.matmul.default, args=(last.outs[0], value), kwargs={})


def _steps(node: Node, types: dict[Var, TensorType]) -> Iterator[Node]:
    bias, first, second = node.args
    product = Var(1 + max(var.id for var in types))
    types[product] = types[node.outs[0]]
    yield replace(node, op=traits_of(node.op).product, args=(first, second), outs=(product,))
    yield replace(node, op=aten.add.Tensor, args=(product, bias))
