"""Scaled dot product attention, whichever kernel PyTorch picks: written out as products and a softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphguard.relations.algebra import Algebra, Scalar, Unsupported, V
from graphguard.rules.arithmetic import LETTERS, Number, broadcast_shape, chosen, expanded, plus, scaled
from graphguard.rules.contraction import contracted
from graphguard.rules.layout import repeat_interleave, triangle
from graphguard.rules.random_draws import native_dropout
from graphguard.rules.registry import Call, rule
from graphguard.rules.scalars import exact, inverse
from graphguard.rules.softmax import softmax_gradient, softmax_over


def attention_scale(head_dim: int, scale: Number | None) -> Scalar:
    """The factor of the scores: 1 / sqrt(head dim) unless given."""
    return inverse(math.sqrt(head_dim)) if scale is None else exact(scale)


def attention_weights(a: Algebra[V], query: V, key: V, mask: V | None, is_causal: bool, factor: Scalar) -> V:
    """softmax(query key^T factor + mask); key has the heads of query."""
    lead = LETTERS[: len(query.shape) - 2]
    scores = scaled(a, contracted(a, f"{lead}xz,{lead}yz->{lead}xy", query, key), factor)
    if is_causal:
        keep = expanded(a, triangle(a, *scores.shape[-2:], 0), scores.shape)
        scores = chosen(a, keep, scores, -math.inf)
    if mask is not None:
        scores = chosen(a, mask, scores, -math.inf) if mask.kind == "bool" else plus(a, scores, mask)
    return softmax_over(a, scores, -1)


def _grouped(a: Algebra[V], query: V, v: V, enable_gqa: bool) -> V:
    """Key or value with as many heads, and over as many batches, as the query."""
    if enable_gqa and v.shape[-3] != query.shape[-3]:
        v = repeat_interleave(a, v, query.shape[-3] // v.shape[-3], -3)
    batch = broadcast_shape(query.shape[:-2], v.shape[:-2])
    if batch != query.shape[:-2]:
        raise Unsupported("attention whose queries are broadcast")
    return expanded(a, v, (*batch, *v.shape[-2:]))


def _ungrouped(a: Algebra[V], gradient: V, v: V) -> V:
    """The gradient of :func:`_grouped`: summed over the heads and batches that shared."""
    if gradient.shape == v.shape:
        return gradient
    lead = len(gradient.shape) - len(v.shape)
    gradient = a.sum(gradient, range(lead)) if lead else gradient
    for dim in range(len(v.shape) - 2):
        wide, narrow = gradient.shape[dim], v.shape[dim]
        if wide != narrow:
            shape = gradient.shape
            split = a.reshape(gradient, (*shape[:dim], narrow, wide // narrow, *shape[dim + 1 :]))
            gradient = a.sum(split, [dim + 1])
    return gradient


@rule("gg.sdpa")
def sdpa(
    a: Algebra[V],
    query: V,
    key: V,
    value: V,
    attn_mask: V | None = None,
    dropout_p: Number = 0.0,
    is_causal: bool = False,
    scale: Number | None = None,
    enable_gqa: bool = False,
    *,
    call: Call,
) -> V:
    """out = dropout(softmax(scale query key^T + mask)) value; scale 1 / sqrt(head dim); is_causal masks column > row with -inf"""
    key, value = _grouped(a, query, key, enable_gqa), _grouped(a, query, value, enable_gqa)
    factor = attention_scale(query.shape[-1], scale)
    weights = attention_weights(a, query, key, attn_mask, is_causal, factor)
    if dropout_p:
        weights = native_dropout(a, weights, dropout_p, True, call=call)[0]
    lead = LETTERS[: len(query.shape) - 2]
    return contracted(a, f"{lead}xy,{lead}yz->{lead}xz", weights, value)


@rule("gg.sdpa_backward")
def sdpa_backward(
    a: Algebra[V],
    grad_output: V,
    query: V,
    key: V,
    value: V,
    out: V | None = None,
    attn_mask: V | None = None,
    dropout_p: Number = 0.0,
    is_causal: bool = False,
    scale: Number | None = None,
    enable_gqa: bool = False,
    *,
    call: Call,
) -> list[V | None]:
    """With P the softmax: gV = P^T g; S = P (g V^T - sum(g V^T P)); gQ = scale S K; gK = scale S^T Q; gMask = S"""
    if dropout_p:
        raise Unsupported("the backward of attention with dropout")
    keys, values = _grouped(a, query, key, enable_gqa), _grouped(a, query, value, enable_gqa)
    factor = attention_scale(query.shape[-1], scale)
    weights = attention_weights(a, query, keys, attn_mask, is_causal, factor)
    lead = LETTERS[: len(query.shape) - 2]
    inner = contracted(a, f"{lead}xz,{lead}yz->{lead}xy", grad_output, values)
    slope = softmax_gradient(a, inner, weights, -1)
    grad_value = contracted(a, f"{lead}xy,{lead}xz->{lead}yz", weights, grad_output)
    grad_query = scaled(a, contracted(a, f"{lead}xy,{lead}yz->{lead}xz", slope, keys), factor)
    grad_key = scaled(a, contracted(a, f"{lead}xy,{lead}xz->{lead}yz", slope, query), factor)
    gradients: list[V | None] = [grad_query, _ungrouped(a, grad_key, key), _ungrouped(a, grad_value, value)]
    if len(call.node.outs) == 4 and attn_mask is not None:
        gradients.append(reduced_to(a, slope, attn_mask.shape))
    return gradients


def reduced_to(a: Algebra[V], v: V, shape: Sequence[int]) -> V:
    """v summed over the dims that a tensor of this shape was broadcast along."""
    lead = len(v.shape) - len(shape)
    dims = [*range(lead), *(lead + i for i, extent in enumerate(shape) if extent == 1 and v.shape[lead + i] != 1)]
    return a.reshape(a.sum(v, dims) if dims else v, tuple(shape))
