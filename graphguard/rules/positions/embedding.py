"""Embedding tables: looking rows up, and the gradient of that."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from graphguard.relations.algebra import Algebra, Unsupported, V
from graphguard.rules.basis.arithmetic import LETTERS
from graphguard.rules.basis.index_maps import Indices, cut, in_few_pieces, join, take
from graphguard.rules.basis.registry import rule


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
    known = a.known(indices)
    if known is None or not in_few_pieces(known):
        return a.lookup(weight, indices)
    return a.reshape(take(a, weight, 0, known.reshape(-1)), (*indices.shape, weight.shape[1]))


@rule("aten.embedding_dense_backward.default")
def embedding_dense_backward(
    a: Algebra[V], grad_output: V, indices: V, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> V:
    """out[v, d] = sum_n [indices[n] = v] grad_output[n, d], 0 for v = padding_idx"""
    if scale_grad_by_freq:
        raise Unsupported("scale_grad_by_freq")
    known = a.known(indices)
    if known is not None and known.size and in_few_pieces(np.sort(known, axis=None)):
        gradient = _rows_of_known(a, grad_output, known.reshape(-1), num_weights)
    else:
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


def _rows_of_known(a: Algebra[V], gradient: V, indices: Indices, rows: int) -> V:
    """Row v is the sum of the gradients at the places where v stands; zeros between."""
    width = gradient.shape[-1]
    flat = a.reshape(gradient, (math.prod(gradient.shape[:-1]), width))
    parts, done = [], 0
    for row in np.unique(indices):
        if row > done:
            parts.append(a.full((int(row) - done, width), Fraction(0), "float"))
        places = take(a, flat, 0, np.flatnonzero(indices == row))
        parts.append(a.reshape(a.sum(places, [0]), (1, width)))
        done = int(row) + 1
    if done < rows:
        parts.append(a.full((rows - done, width), Fraction(0), "float"))
    return join(a, parts, 0)
