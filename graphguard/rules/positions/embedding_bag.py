"""Bags of table rows, added up or averaged: ``embedding_bag`` where the trace knows at which index every bag begins, and its gradients."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np

from graphguard.relations.algebra import Algebra, Unsupported, V
from graphguard.rules.basis.arithmetic import compared, full, over, times
from graphguard.rules.basis.casting import convert
from graphguard.rules.basis.index_maps import Indices, cut, join, take
from graphguard.rules.basis.registry import Call, rule
from graphguard.rules.positions.embedding import embedding, embedding_dense_backward

_SUM, _MEAN = 0, 1


def _starts(a: Algebra[V], indices: V, offsets: V, last: bool = False) -> Indices:
    """Where bags begin, and where the last one ends."""
    known = a.known(offsets)
    if known is None:
        raise Unsupported("bags whose bounds the data decides")
    flat = known.reshape(-1).astype(np.int64)
    return flat if last else np.append(flat, indices.shape[0])


def _counted(a: Algebra[V], indices: V, weights: V | None, padding_idx: int) -> V | None:
    """How often each index counts: its weight, and never where it is the padding; None where that is once."""
    if padding_idx < 0:
        return weights
    real = convert(a, compared(a, "ne", indices, padding_idx), "float")
    return real if weights is None else a.multiply(real, weights)


def _bagged(a: Algebra[V], rows: V, starts: Indices) -> V:
    """The sum of the rows of every bag."""
    lengths = np.diff(starts)
    if not lengths.size:
        raise Unsupported("no bags at all")
    if starts[0] == 0 and (lengths == lengths[0]).all() and lengths[0]:
        return a.sum(a.reshape(rows, (lengths.size, int(lengths[0]), *rows.shape[1:])), [1])
    bags = [a.sum(cut(a, rows, 0, int(low), int(high)), [0]) for low, high in pairwise(starts)]
    return join(a, [a.reshape(bag, (1, *bag.shape)) for bag in bags], 0)


def _bag_of(starts: Indices) -> Indices:
    """The bag of every index."""
    return np.repeat(np.arange(starts.size - 1), np.diff(starts))


def _sizes(a: Algebra[V], indices: V, starts: Indices, padding_idx: int) -> V:
    """How many indices count in every bag."""
    counted = _counted(a, indices, None, padding_idx)
    return a.literal(np.diff(starts).astype(np.float64)) if counted is None else _bagged(a, counted, starts)


def _over_sizes(a: Algebra[V], rows: V, sizes: V) -> V:
    """Every bag's row divided by the bag's size; a bag without any is nothing and has one."""
    some = a.maximum(sizes, full(a, sizes.shape, 1, "float"))
    return over(a, rows, a.expand(a.reshape(some, (*some.shape, 1)), rows.shape))


def _weighed(a: Algebra[V], rows: V, counted: V | None) -> V:
    if counted is None:
        return rows
    return times(a, rows, a.expand(a.reshape(counted, (*counted.shape, 1)), rows.shape))


@rule("aten._embedding_bag.default", "aten._embedding_bag_forward_only.default")
def embedding_bag(
    a: Algebra[V],
    weight: V,
    indices: V,
    offsets: V,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: V | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
    *,
    call: Call,
) -> tuple[V, ...]:
    """out[b] = sum over the indices i of bag b of w[i] weight[i], for mode 1 divided by their number; the padding's row counts nothing; and what the gradient reads"""
    if mode not in (_SUM, _MEAN):
        raise Unsupported("the largest of a bag")
    starts = _starts(a, indices, offsets, include_last_offset)
    rows: V = embedding(a, weight, indices)
    out = _bagged(a, _weighed(a, rows, _counted(a, indices, per_sample_weights, padding_idx)), starts)
    bags = a.literal(_bag_of(starts)) if call.shape(1) != (0,) else a.full((0,), Fraction(0), "int")
    if mode == _SUM:
        none = a.full((starts.size - 1,), Fraction(0), "int")
        return out, bags, none, none
    sizes = _sizes(a, indices, starts, padding_idx)
    return _over_sizes(a, out, sizes), bags, convert(a, sizes, "int"), convert(a, sizes, "int")


@rule("aten._embedding_bag_backward.default")
def embedding_bag_backward(
    a: Algebra[V],
    grad: V,
    indices: V,
    offsets: V,
    offset2bag: V,
    bag_size: V,
    maximum_indices: V,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: V | None,
    padding_idx: int = -1,
) -> V:
    """out[v] = sum over the indices i = v of w[i] grad[bag of i], for mode 1 divided by the bag's number; 0 for the padding"""
    if mode not in (_SUM, _MEAN) or sparse:
        raise Unsupported("the largest of a bag" if mode not in (_SUM, _MEAN) else "a sparse gradient")
    starts = _starts(a, indices, offsets)[: grad.shape[0] + 1]  # without the last offset, if it is among them
    if mode == _MEAN:
        grad = _over_sizes(a, grad, _sizes(a, indices, starts, padding_idx))
    rows = _weighed(a, take(a, grad, 0, _bag_of(starts)), per_sample_weights)
    gradient: V = embedding_dense_backward(a, rows, indices, num_weights, padding_idx, scale_grad_by_freq)
    return gradient


@rule("aten._embedding_bag_per_sample_weights_backward.default")
def per_sample_weights_backward(
    a: Algebra[V], grad: V, weight: V, indices: V, offsets: V, offset2bag: V, mode: int, padding_idx: int = -1
) -> V:
    """out[i] = sum_d weight[i, d] grad[bag of i, d], 0 for the padding"""
    rows: V = embedding(a, weight, indices)
    grads = take(a, grad, 0, _bag_of(_starts(a, indices, offsets)))
    counted = _counted(a, indices, None, padding_idx)
    return a.sum(_weighed(a, a.multiply(rows, grads), counted), [1])
