"""Reference kernels: operators that torch lacks on this machine, or that graphs define anew, on plain tensors.

Each is written from its documentation, in the order of its arguments there.  :data:`OURS` are GraphGuard's own operators, whose meaning
graphs/graph.py states; :data:`REFERENCE` are other libraries', and a verdict that rests on one lists it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import torch

Kernel = Callable[..., Any]


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
    scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        visible = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
        scores = scores.masked_fill(~visible, -math.inf)
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


OURS: Final[dict[str, Kernel]] = {"gg.sdpa": sdpa, "gg.sdpa_backward": sdpa_backward}

REFERENCE: Final[dict[str, Kernel]] = {"peer.dropout": sharded_dropout}
