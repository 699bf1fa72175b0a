"""Reference kernels: operators that torch lacks on this machine, or that graphs define anew, on plain tensors.

Each is written from its documentation, in the order of its arguments there.  :data:`OURS` are GraphGuard's own operators, whose meaning
graphs/graph.py states; :data:`REFERENCE` are other libraries', and a verdict that rests on one lists it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import torch

from graphguard.confirm.run.elements import UncoveredError
from graphguard.ops import aten

Kernel = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class _Scoring:
    """How queries meet keys: the factor (None for one over the root of the width), what is hidden, and what is added."""

    is_causal: bool
    scale: float | None
    bias: torch.Tensor | None = None

    def factor(self, query: torch.Tensor) -> float:
        """What the products are multiplied by."""
        return 1 / math.sqrt(query.shape[-1]) if self.scale is None else self.scale

    def scores(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        """The scores before the softmax."""
        scores = query @ key.transpose(-2, -1) * self.factor(query)
        if self.is_causal:
            visible = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
            scores = scores.masked_fill(~visible, -math.inf)
        return scores if self.bias is None else scores + self.bias


def sdpa(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """``torch.nn.functional.scaled_dot_product_attention`` by its documented equation.

    Shapes (..., Hq, L, E), (..., H, S, E), (..., H, S, Ev) -> (..., Hq, L, Ev).
    """
    if enable_gqa:
        repeats = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(repeats, -3), value.repeat_interleave(repeats, -3)
    scores = _Scoring(is_causal, scale).scores(query, key)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    weights = torch.softmax(scores, -1)
    if dropout_p:
        weights = torch.dropout(weights, dropout_p, train=True)
    return weights @ value


def sdpa_backward(
    grad: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[torch.Tensor, ...]:
    """The gradients of :func:`sdpa` with respect to query, key and value, from the gradient of its result ``out``."""
    _ = out  # recomputed: kernels keep it to save work, the gradient does not depend on where it comes from
    q, k, v = (tensor.detach().requires_grad_() for tensor in (query, key, value))
    with torch.enable_grad():
        result = sdpa(q, k, v, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        return torch.autograd.grad(result, (q, k, v), grad)


def sharded_dropout(x: torch.Tensor, p: float) -> torch.Tensor:
    """Dropout whose mask belongs to the logical element: a fixed function of the element and ``p``, as nothing more is known of it."""
    return x * (1 + torch.sin(7 * x + p) / 2) / (1 - p)


def assume(what: torch.Tensor | int, truth: bool) -> torch.Tensor:
    """True where a condition or a size is as it was recorded; raises :class:`UncoveredError` for numbers that are outside of that."""
    if bool(what > 0) is not truth:
        raise UncoveredError("on no draw was it as assumed where the program asks for a truth value")
    return torch.ones((), dtype=torch.bool)


def masked_scatter(self: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """PyTorch's own; raises :class:`UncoveredError` for numbers of which the mask chooses more than the source has."""
    if int(mask.expand(torch.broadcast_shapes(self.shape, mask.shape)).sum()) > source.numel():
        raise UncoveredError("on no draw did masked_scatter have as many elements as its mask chooses")
    return torch.masked_scatter(self, mask, source)


OURS: Final[dict[str, Kernel]] = {
    "gg.assume": assume,
    aten.masked_scatter.default: masked_scatter,
    "gg.rounded": lambda x, _: x,
    "gg.sdpa": sdpa,
    "gg.sdpa_backward": sdpa_backward,
}


def _per_query_head(query: torch.Tensor, *shared: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Keys and values once for every query head that uses them."""
    return tuple(one.repeat_interleave(query.shape[-3] // one.shape[-3], -3) for one in shared)


def _attended(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scoring: _Scoring
) -> tuple[torch.Tensor, ...]:
    """Result and logsumexp; the seeds and offsets that GPU kernels return beside them are numbers of no model."""
    key, value = _per_query_head(query, key, value)
    scores = scoring.scores(query, key)
    zero = torch.zeros((), dtype=torch.int64)
    return torch.softmax(scores, -1) @ value, torch.logsumexp(scores, -1), zero, zero


def flash_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[torch.Tensor, ...]:
    """``aten._scaled_dot_product_flash_attention`` without dropout: result, logsumexp, and five that are no numbers of the model."""
    _refuse(dropout_p)
    out, logsumexp, seed, offset = _attended(query, key, value, _Scoring(is_causal, scale))
    _ = return_debug_mask
    return out, logsumexp, seed, seed, seed.expand(2), offset, torch.empty(0)


def efficient_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: torch.Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[torch.Tensor, ...]:
    """``aten._scaled_dot_product_efficient_attention`` without dropout: result, logsumexp, seed, offset."""
    _refuse(dropout_p)
    _ = compute_log_sumexp
    return _attended(query, key, value, _Scoring(is_causal, scale, attn_bias))


def cudnn_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: torch.Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[torch.Tensor, ...]:
    """``aten._scaled_dot_product_cudnn_attention`` without dropout: result, logsumexp as a column, and what is no number of the model."""
    _refuse(dropout_p)
    _ = compute_log_sumexp, return_debug_mask
    out, logsumexp, seed, offset = _attended(query, key, value, _Scoring(is_causal, scale, attn_bias))
    zero = torch.zeros((), dtype=torch.int64)
    return out, logsumexp[..., None], zero, zero, zero, zero, seed, offset, torch.empty(0)


def cudnn_attention_backward(
    grad: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    *rest: Any,
    scale: float | None = None,
) -> tuple[torch.Tensor, ...]:
    """Gradients from the weights exp(scores - logsumexp), as :func:`flash_attention_backward`."""
    _, _, attn_bias, _, _, _, _, dropout_p, is_causal = rest
    _refuse(dropout_p)
    return _gradients(grad, (query, key, value), out, logsumexp[..., 0], _Scoring(is_causal, scale, attn_bias))


def _refuse(dropout_p: float) -> None:
    if dropout_p:
        raise NotImplementedError("an attention kernel with dropout")


def flash_attention_backward(
    grad: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    *rest: Any,
    scale: float | None = None,
) -> tuple[torch.Tensor, ...]:
    """Gradients from the weights exp(scores - logsumexp), of which a ring holds only some columns (FlashAttention-2, section 3.1.2)."""
    _, _, _, _, dropout_p, is_causal, *_ = rest
    _refuse(dropout_p)
    return _gradients(grad, (query, key, value), out, logsumexp, _Scoring(is_causal, scale))


def _gradients(
    grad: torch.Tensor,
    operands: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    scoring: _Scoring,
) -> tuple[torch.Tensor, ...]:
    """The gradients of query, key and value."""
    query, key, value = operands
    keys, values = _per_query_head(query, key, value)
    weights = torch.exp(scoring.scores(query, keys) - logsumexp[..., : query.shape[-2], None])
    slope = weights * (grad @ values.transpose(-2, -1) - (grad * out).sum(-1, keepdim=True))
    factor = scoring.factor(query)
    return (
        slope @ keys * factor,
        _summed_like(slope.transpose(-2, -1) @ query * factor, key),
        _summed_like(weights.transpose(-2, -1) @ grad, value),
    )


def _summed_like(gradient: torch.Tensor, shared: torch.Tensor) -> torch.Tensor:
    """The gradient of what several query heads share."""
    heads = shared.shape[-3]
    return gradient.unflatten(-3, (heads, gradient.shape[-3] // heads)).sum(-3)


def grouped_product(
    a: torch.Tensor,
    b: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,  # noqa: ARG001 - numbers are replayed as doubles
) -> torch.Tensor:
    """``torch._grouped_mm``: group g has the rows of ``a``, the columns of ``b``, or the inner places offs[g - 1] <= t < offs[g].

    Zero beyond the last group.
    Shapes (T, D) (G, D, F) -> (T, F), (G, M, D) (D, T) -> (M, T), (M, T) (T, F) -> (G, M, F), (G, M, D) (G, D, F) -> (G, M, F).
    """
    if bias is not None:
        raise NotImplementedError("a grouped product with a bias")
    ranks = (a.dim(), b.dim())
    if ranks == (3, 3) or offs is None:
        return a @ b
    ends = [0, *offs.tolist()]
    groups = list(enumerate(pairwise(ends)))
    if ranks == (2, 2):
        return torch.stack([a[:, low:high] @ b[low:high] for _, (low, high) in groups])
    if ranks == (2, 3):
        rows = [a[low:high] @ b[g] for g, (low, high) in groups]
        return torch.cat([*rows, a.new_zeros(a.shape[0] - ends[-1], b.shape[2])])
    columns = [a[g] @ b[:, low:high] for g, (low, high) in groups]
    return torch.cat([*columns, a.new_zeros(a.shape[1], b.shape[1] - ends[-1])], 1)


REFERENCE: Final[dict[str, Kernel]] = {
    aten._grouped_mm.default: grouped_product,
    "peer.dropout": sharded_dropout,
    aten._scaled_dot_product_flash_attention.default: flash_attention,
    aten._scaled_dot_product_flash_attention_backward.default: flash_attention_backward,
    aten._scaled_dot_product_efficient_attention.default: efficient_attention,
    aten._scaled_dot_product_cudnn_attention.default: cudnn_attention,
    aten._scaled_dot_product_cudnn_attention_backward.default: cudnn_attention_backward,
}
