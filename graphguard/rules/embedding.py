"""Embedding tables: looking rows up, and the gradient of that."""

from __future__ import annotations

from fractions import Fraction

from graphguard.relations.algebra import Algebra, Unsupported, V
from graphguard.rules.arithmetic import LETTERS
from graphguard.rules.index_maps import cut, join
from graphguard.rules.registry import rule


@rule("aten.embedding.default")
def embedding(
    a: Algebra[V],
    weight: V,
    indices: V,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> V:
    """out[..., d] = weight[indices[...], d]"""
    return a.lookup(weight, indices)


@rule("aten.embedding_dense_backward.default")
def embedding_dense_backward(
    a: Algebra[V], grad_output: V, indices: V, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> V:
    """out[v, d] = sum_n [indices[n] = v] grad_output[n, d], 0 for v = padding_idx"""
    if scale_grad_by_freq:
        raise Unsupported("scale_grad_by_freq")
    lead = LETTERS[: len(indices.shape)]
    hot = a.one_hot(indices, num_weights, checked=True)
    gradient = a.contract([(hot, lead + "y"), (grad_output, lead + "z")], "yz")
    if padding_idx < 0:
        return gradient
    parts = [
        cut(a, gradient, 0, 0, padding_idx),
        a.full((1, gradient.shape[1]), Fraction(0), "float"),
        cut(a, gradient, 0, padding_idx + 1, num_weights),
    ]
    return join(a, [part for part in parts if part.shape[0]], 0)
