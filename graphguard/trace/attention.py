"""Scaled dot product attention as one operator, whichever kernel PyTorch would pick.

``gg::sdpa`` takes the arguments of ``torch.nn.functional.scaled_dot_product_attention``, all positional; ``gg::sdpa_backward`` takes the
gradient, q, k, v, the result, and the rest.  PyTorch's own kernels, where code or DTensor calls them, are read as the same two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from graphguard.trace.errors import TracingError
from graphguard.trace.events import Event, Ref

_LIBRARY = torch.library.Library("gg", "DEF")
_LIBRARY.define(
    "sdpa(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, float dropout_p, bool is_causal, float? scale, bool enable_gqa) -> Tensor",
    tags=(torch.Tag.nondeterministic_seeded,),
)
_LIBRARY.define(
    "sdpa_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out, Tensor? attn_mask, float dropout_p, bool is_causal, "
    "float? scale, bool enable_gqa) -> (Tensor, Tensor, Tensor)"
)


def _meta(query: Any, key: Any, value: Any, *_: Any) -> Any:
    return query.new_empty((*query.shape[:-1], value.shape[-1]))


def _meta_backward(grad_out: Any, query: Any, key: Any, value: Any, *_: Any) -> Any:
    return query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Any, key: Any, value: Any, mask: Any, *rest: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():  # noqa: SLF001  # how an autograd kernel calls the next one
            out = torch.ops.gg.sdpa.default(query, key, value, mask, *rest)
        ctx.save_for_backward(query, key, value, mask, out)
        ctx.rest = rest
        if mask is not None and mask.requires_grad:
            raise TracingError("unsupported-operator", "a gradient of attn_mask is asked for, which is not traced")
        return out

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        query, key, value, mask, out = ctx.saved_tensors
        grads = torch.ops.gg.sdpa_backward.default(grad, query, key, value, out, mask, *ctx.rest)
        return (*grads, None, *(None for _ in ctx.rest))


def _autograd(*args: Any) -> Any:
    return _Attention.apply(*args)


for _key in ("CPU", "CUDA", "Meta"):
    _LIBRARY.impl("sdpa", _meta, _key)
    _LIBRARY.impl("sdpa_backward", _meta_backward, _key)
_LIBRARY.impl("sdpa", _autograd, "Autograd")

_torch_sdpa = torch.nn.functional.scaled_dot_product_attention


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """What programs call while they are traced, in place of PyTorch's function of this name."""
    operands = (query, key, value, attn_mask)
    if any(type(t) not in (torch.Tensor, torch.nn.Parameter) and _is_wrapper(t) for t in operands):
        return _torch_sdpa(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    if query.dim() < 4 and enable_gqa:
        return _torch_sdpa(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    return torch.ops.gg.sdpa.default(
        query, key, value, attn_mask, float(dropout_p), is_causal, None if scale is None else float(scale), enable_gqa
    )


def _is_wrapper(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and torch.utils._python_dispatch.is_traceable_wrapper_subclass(tensor)  # noqa: SLF001


@dataclass(frozen=True, slots=True)
class Attention:
    """A kernel's call in the form of :func:`scaled_dot_product_attention`; ``args`` hold references."""

    op: str
    args: tuple[Any, ...]
    outs: tuple[Ref, ...]


_FORWARD = {
    "_scaled_dot_product_flash_attention_for_cpu": ("dropout_p", "is_causal"),
    "_scaled_dot_product_flash_attention": ("dropout_p", "is_causal", "return_debug_mask"),
    "_scaled_dot_product_efficient_attention": ("attn_bias", "compute_log_sumexp", "dropout_p", "is_causal"),
    "_scaled_dot_product_cudnn_attention": (
        "attn_bias",
        "compute_log_sumexp",
        "dropout_p",
        "is_causal",
        "return_debug_mask",
    ),
    "_scaled_dot_product_fused_attention_overrideable": ("attn_bias", "dropout_p", "is_causal", "return_debug_mask"),
}
_BACKWARD = {
    "_scaled_dot_product_flash_attention_for_cpu_backward": ("out", "logsumexp", "dropout_p", "is_causal"),
    "_scaled_dot_product_flash_attention_backward": (
        "out", "logsumexp", "cum_seq_q", "cum_seq_k", "max_q", "max_k", "dropout_p", "is_causal", "philox_seed", "philox_offset",
    ),
    "_scaled_dot_product_efficient_attention_backward": (
        "attn_bias", "out", "logsumexp", "philox_seed", "philox_offset", "dropout_p", "grad_input_mask", "is_causal",
    ),
}  # fmt: skip


def is_attention(name: str) -> bool:
    """Whether an operator is one of PyTorch's attention kernels."""
    return name in _FORWARD or name in _BACKWARD


def canonical(name: str, event: Event) -> Attention:
    """A kernel's call as ``gg.sdpa`` or ``gg.sdpa_backward``."""
    backward = name in _BACKWARD
    first = 4 if backward else 3
    given = dict(zip(_BACKWARD[name] if backward else _FORWARD[name], event.args[first:], strict=False)) | event.kwargs
    mask = given.get("attn_mask", given.get("attn_bias"))
    rest = (
        mask,
        float(given.get("dropout_p", 0.0)),
        bool(given.get("is_causal", False)),
        given.get("scale"),
        _grouped(event, first),
    )
    if backward:
        outs = tuple(event.outs[:3])
        return Attention("gg.sdpa_backward", (*event.args[:4], given["out"], *rest), outs)
    return Attention("gg.sdpa", (*event.args[:3], *rest), (event.outs[0],))


def _grouped(event: Event, first: int) -> bool:
    """Whether keys have fewer heads than queries."""
    query, key = event.args[first - 3], event.args[first - 2]
    return bool(len(query.shape) == 4 and query.shape[1] != key.shape[1])
