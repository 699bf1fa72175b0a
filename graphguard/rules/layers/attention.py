"""Scaled dot product attention, whichever kernel PyTorch picks: written out as products and a softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Generic

from graphguard.relations.algebra import Algebra, Scalar, Unsupported, V
from graphguard.rules.basis.arithmetic import (
    LETTERS,
    Number,
    broadcast_shape,
    chosen,
    expanded,
    minus,
    over,
    plus,
    scaled,
    times,
)
from graphguard.rules.basis.casting import ABSENT
from graphguard.rules.basis.registry import Call, rule
from graphguard.rules.basis.scalars import exact, inverse
from graphguard.rules.elements.random_draws import native_dropout
from graphguard.rules.lines.contraction import contracted
from graphguard.rules.lines.reductions import total
from graphguard.rules.lines.softmax import softmax_gradient, softmax_over
from graphguard.rules.positions.layout import repeat_interleave
from graphguard.rules.positions.patterns import triangle

#: What a masked attention rests on.
SEEN: Final = "every query of attention has a key that its mask leaves: PyTorch gives 0 where there is none, and a softmax that is written out gives no number"


def attention_scale(head_dim: int, scale: Number | None) -> Scalar:
    """The factor of the scores: 1 / sqrt(head dim) unless given."""
    return inverse(math.sqrt(head_dim)) if scale is None else exact(scale)


def masked_scores(a: Algebra[V], query: V, key: V, mask: V | None, is_causal: bool, factor: Scalar) -> V:
    """query key^T factor + mask, -inf where a mask of truth values is false; key has the heads of query."""
    lead = LETTERS[: len(query.shape) - 2]
    scores = scaled(a, contracted(a, f"{lead}xz,{lead}yz->{lead}xy", query, key), factor)
    if is_causal:
        rows, columns = scores.shape[-2:]
        keep = expanded(a, triangle(a, rows, columns, 0), scores.shape)
        scores = chosen(a, keep, scores, -math.inf)
    if mask is None:
        return scores
    return chosen(a, mask, scores, -math.inf) if mask.kind == "bool" else plus(a, scores, mask)


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


def _causal_softmax(a: Algebra[V], scores: V) -> V:
    """softmax with -inf for every score whose column > row: what is kept of exp(scores), divided by its sum."""
    rows, columns = scores.shape[-2:]
    keep = expanded(a, triangle(a, rows, columns, 0), scores.shape)
    kept = chosen(a, keep, a.exp(scores), 0.0)
    return over(a, kept, total(a, kept, [len(scores.shape) - 1], True))


def _weights(a: Algebra[V], query: V, key: V, mask: V | None, is_causal: bool, factor: Scalar, enable_gqa: bool) -> V:
    """softmax(factor query key^T + mask); what a backward makes again of the same operands is the forward's."""

    def made() -> V:
        keys = _grouped(a, query, key, enable_gqa)
        if not is_causal or mask is not None:
            return softmax_over(a, masked_scores(a, query, keys, mask, is_causal, factor), -1)
        return _causal_softmax(a, masked_scores(a, query, keys, None, False, factor))

    return a.once(("attention weights", query, key, mask, is_causal, factor, enable_gqa), made)


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
    factor = attention_scale(query.shape[-1], scale)
    if attn_mask is not None and attn_mask.kind == "bool" and a.known(attn_mask) is None:
        a.assume(SEEN)
    weights = _weights(a, query, key, attn_mask, is_causal, factor, enable_gqa)
    value = _grouped(a, query, value, enable_gqa)
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
    weights = _weights(a, query, key, attn_mask, is_causal, factor, enable_gqa)
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


# -- PyTorch's kernels, where code calls them itself: they hand out the logarithm of every row's sum of exponentials
@dataclass(frozen=True, slots=True)
class Scores(Generic[V]):
    """Masked scores of queries against keys, (batch..., query, key), and the factor in them."""

    values: V
    factor: Scalar
    lead: str


def _scores(a: Algebra[V], query: V, key: V, mask: V | None, is_causal: bool, scale: Number | None) -> Scores[V]:
    factor = attention_scale(query.shape[-1], scale)
    lead = LETTERS[: len(query.shape) - 2]
    return Scores(masked_scores(a, query, key, mask, is_causal, factor), factor, lead)


def _with_logsumexp(
    a: Algebra[V],
    query: V,
    key: V,
    value: V,
    mask: V | None,
    dropout_p: Number,
    is_causal: bool,
    scale: Number | None,
    call: Call,
) -> list[V | None]:
    """Result and logsumexp; whatever else the kernel returns (random states, sequence offsets) is not a number of the model: zeros."""
    if dropout_p:
        raise Unsupported("an attention kernel with dropout")
    key, value = _grouped(a, query, key, True), _grouped(a, query, value, True)
    scores = _scores(a, query, key, mask, is_causal, scale)
    total = a.sum(a.exp(scores.values), [len(query.shape) - 1])
    out = contracted(a, f"{scores.lead}xy,{scores.lead}yz->{scores.lead}xz", softmax_over(a, scores.values, -1), value)
    count = len(call.node.outs)
    rest = [
        None if call.type(index).dtype == ABSENT else a.full(call.shape(index), Fraction(0), call.kind(index))
        for index in range(2, count)
    ]
    logsumexp = a.log(total)
    if count > 1 and call.shape(1) == (*logsumexp.shape, 1):  # cuDNN's is a column
        logsumexp = a.reshape(logsumexp, call.shape(1))
    return [out, logsumexp, *rest][:count]


def _from_logsumexp(
    a: Algebra[V],
    grad_out: V,
    query: V,
    key: V,
    value: V,
    out: V,
    logsumexp: V,
    mask: V | None,
    dropout_p: Number,
    is_causal: bool,
    scale: Number | None,
) -> list[V]:
    """Gradients with the weights exp(scores - logsumexp), of which a ring holds only some columns."""
    if dropout_p:
        raise Unsupported("an attention kernel with dropout")
    keys, values = _grouped(a, query, key, True), _grouped(a, query, value, True)
    scores = _scores(a, query, keys, mask, is_causal, scale)
    lead, rank = scores.lead, len(query.shape)
    column = a.reshape(logsumexp, (*out.shape[:-1], 1))
    weights = a.exp(minus(a, scores.values, column))
    inner = contracted(a, f"{lead}xz,{lead}yz->{lead}xy", grad_out, values)
    row = a.reshape(a.sum(times(a, grad_out, out), [rank - 1]), column.shape)
    slope = times(a, weights, minus(a, inner, row))
    grad_query = scaled(a, contracted(a, f"{lead}xy,{lead}yz->{lead}xz", slope, keys), scores.factor)
    grad_key = scaled(a, contracted(a, f"{lead}xy,{lead}xz->{lead}yz", slope, query), scores.factor)
    grad_value = contracted(a, f"{lead}xy,{lead}xz->{lead}yz", weights, grad_out)
    return [grad_query, _ungrouped(a, grad_key, key), _ungrouped(a, grad_value, value)]


@rule("aten._scaled_dot_product_flash_attention_for_cpu.default")
def flash_for_cpu(
    a: Algebra[V],
    query: V,
    key: V,
    value: V,
    dropout_p: Number = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: V | None = None,
    scale: Number | None = None,
    call: Call,
) -> list[V | None]:
    """(softmax(s) value, log sum exp(s)), s = scale query key^T + mask"""
    return _with_logsumexp(a, query, key, value, attn_mask, dropout_p, is_causal, scale, call)


@rule("aten._scaled_dot_product_flash_attention.default")
def flash(
    a: Algebra[V],
    query: V,
    key: V,
    value: V,
    dropout_p: Number = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: Number | None = None,
    call: Call,
) -> list[V | None]:
    """(softmax(s) value, log sum exp(s), ...), s = scale query key^T"""
    return _with_logsumexp(a, query, key, value, None, dropout_p, is_causal, scale, call)


@rule(
    "aten._scaled_dot_product_efficient_attention.default",
    "aten._scaled_dot_product_cudnn_attention.default",
)
def efficient(
    a: Algebra[V],
    query: V,
    key: V,
    value: V,
    attn_bias: V | None,
    compute_log_sumexp: bool,
    dropout_p: Number = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: Number | None = None,
    call: Call,
) -> list[V | None]:
    """(softmax(s) value, log sum exp(s), ...), s = scale query key^T + attn_bias"""
    return _with_logsumexp(a, query, key, value, attn_bias, dropout_p, is_causal, scale, call)


@rule("aten._scaled_dot_product_flash_attention_for_cpu_backward.default")
def flash_for_cpu_backward(
    a: Algebra[V],
    grad_out: V,
    query: V,
    key: V,
    value: V,
    out: V,
    logsumexp: V,
    dropout_p: Number,
    is_causal: bool,
    *,
    attn_mask: V | None = None,
    scale: Number | None = None,
) -> list[V]:
    """With P = exp(s - logsumexp), S = P (g V^T - sum g out): gQ = scale S K; gK = scale S^T Q; gV = P^T g"""
    return _from_logsumexp(a, grad_out, query, key, value, out, logsumexp, attn_mask, dropout_p, is_causal, scale)


@rule("aten._scaled_dot_product_flash_attention_backward.default")
def flash_backward(
    a: Algebra[V],
    grad_out: V,
    query: V,
    key: V,
    value: V,
    out: V,
    logsumexp: V,
    cum_seq_q: V | None,
    cum_seq_k: V | None,
    max_q: int,
    max_k: int,
    dropout_p: Number,
    is_causal: bool,
    philox_seed: V | None,
    philox_offset: V | None,
    *,
    scale: Number | None = None,
) -> list[V]:
    """With P = exp(s - logsumexp), S = P (g V^T - sum g out): gQ = scale S K; gK = scale S^T Q; gV = P^T g"""
    return _from_logsumexp(a, grad_out, query, key, value, out, logsumexp, None, dropout_p, is_causal, scale)


@rule("aten._scaled_dot_product_efficient_attention_backward.default")
def efficient_backward(
    a: Algebra[V],
    grad_out_: V,
    query: V,
    key: V,
    value: V,
    attn_bias: V | None,
    out: V,
    logsumexp: V,
    philox_seed: V | None,
    philox_offset: V | None,
    dropout_p: Number,
    grad_input_mask: Sequence[bool],
    is_causal: bool = False,
    *,
    scale: Number | None = None,
) -> list[V]:
    """With P = exp(s - logsumexp), S = P (g V^T - sum g out): gQ = scale S K; gK = scale S^T Q; gV = P^T g"""
    if len(grad_input_mask) > 3 and grad_input_mask[3]:
        raise Unsupported("the gradient of attn_bias")
    return _from_logsumexp(a, grad_out_, query, key, value, out, logsumexp, attn_bias, dropout_p, is_causal, scale)


@rule("aten._scaled_dot_product_cudnn_attention_backward.default")
def cudnn_backward(
    a: Algebra[V],
    grad_out: V,
    query: V,
    key: V,
    value: V,
    out: V,
    logsumexp: V,
    philox_seed: V | None,
    philox_offset: V | None,
    attn_bias: V | None,
    cum_seq_q: V | None,
    cum_seq_k: V | None,
    max_q: int,
    max_k: int,
    dropout_p: Number,
    is_causal: bool,
    *,
    scale: Number | None = None,
) -> list[V]:
    """With P = exp(s - logsumexp), S = P (g V^T - sum g out): gQ = scale S K; gK = scale S^T Q; gV = P^T g"""
    return _from_logsumexp(a, grad_out, query, key, value, out, logsumexp, attn_bias, dropout_p, is_causal, scale)
