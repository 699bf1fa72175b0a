"""Scaled dot product attention as one operator, whichever kernel PyTorch would pick.

``gg::sdpa`` takes the arguments of ``torch.nn.functional.scaled_dot_product_attention``, all positional; ``gg::sdpa_backward`` takes the
gradient, q, k, v, the result, and the rest.  Kernels that code calls itself stay what they are: they have results of their own, such as the
logarithm of the sum of exponentials, and ring attention gives their backward the *global* ones.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._higher_order_ops.flex_attention import math_attention

from graphguard.trace.calls.kinds import kind_of
from graphguard.trace.calls.refusals import refuse_types

_LIBRARY = torch.library.Library("gg", "DEF")
_LIBRARY.define(
    "sdpa(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, float dropout_p, bool is_causal, float? scale, bool enable_gqa) -> Tensor",
    tags=(torch.Tag.nondeterministic_seeded,),
)
_LIBRARY.define(
    "sdpa_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out, Tensor? attn_mask, float dropout_p, bool is_causal, "
    "float? scale, bool enable_gqa) -> (Tensor, Tensor, Tensor)"
)


def _meta(query: Any, _: Any, value: Any, *_rest: Any) -> Any:
    return _lying_as(query, (*query.shape[:-1], value.shape[-1]))


def _meta_backward(_: Any, query: Any, key: Any, value: Any, *_rest: Any) -> Any:
    return _lying_as(query, query.shape), _lying_as(key, key.shape), _lying_as(value, value.shape)


def _lying_as(tensor: Any, shape: Any) -> Any:
    """New memory in the order in which a tensor's dims lie, as fused kernels make it: heads that were seen through ``transpose(1, 2)`` can be viewed as one dim when they are turned back."""
    if tensor.dim() != 4 or not all(type(number) is int for number in (*shape, *tensor.stride())):
        return tensor.new_empty(shape)  # of sizes that the data decides nobody knows which lies outermost
    order = sorted(range(4), key=tensor.stride().__getitem__, reverse=True)
    places = [order.index(dim) for dim in range(4)]
    return tensor.new_empty([shape[dim] for dim in order]).permute(places)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Any, key: Any, value: Any, mask: Any, *rest: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():  # noqa: SLF001  # how an autograd kernel calls the next one
            out = torch.ops.gg.sdpa.default(query, key, value, mask, *rest)
        ctx.save_for_backward(query, key, value, mask, out)
        ctx.rest = rest
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

_SDPA = torch.ops.aten.scaled_dot_product_attention.default
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
    if any(type(t) not in (torch.Tensor, torch.nn.Parameter) and is_wrapper(t) for t in operands):
        if query.dim() == 4 and attn_mask is None and not dropout_p:
            return _flash(query, key, value, dropout_p, is_causal, scale=scale)[0]
        return _torch_sdpa(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    if query.dim() < 4 and enable_gqa:
        return _torch_sdpa(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    if attn_mask is not None and is_causal:
        raise RuntimeError("_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True")
    if torch.is_tensor(attn_mask) and attn_mask.requires_grad and torch.is_grad_enabled():
        return _in_steps(query, key, value, attn_mask, dropout_p, scale, enable_gqa)
    refuse_types(kind_of(_SDPA), (query, key, value, attn_mask, 0.0, is_causal), {"enable_gqa": enable_gqa})
    made = torch.ops.gg.sdpa.default(
        query, key, value, attn_mask, float(dropout_p), is_causal, None if scale is None else float(scale), enable_gqa
    )
    fused = query.device.type != "cpu" or query.shape[-1] == value.shape[-1]
    return made if fused else made.contiguous()  # CPUs have no fused kernel for heads of two lengths


def flex_attention(
    original: Any,
    query: Any,
    key: Any,
    value: Any,
    score_mod: Any,
    block_mask: Any,
    scale: float,
    kernel_options: Any,
    score_buffers: Any = (),
    mask_buffers: Any = (),
) -> Any:
    """What ``flex_attention`` calls while it is traced, in place of the higher-order operator: its own unfused form, with the gradients that autograd gives it.

    Returns the result, and the logarithm of the sum of exponentials and the largest score of every row, both in base 2.
    """
    operands = (query, key, value)
    if any(is_wrapper(tensor) for tensor in operands):
        return original(*operands, score_mod, block_mask, scale, kernel_options, score_buffers, mask_buffers)
    device = query.device.type
    if torch.is_autocast_enabled(device):
        narrow = torch.get_autocast_dtype(device)
        query, key, value = (
            t.to(narrow) if t.is_floating_point() and t.dtype != torch.float64 else t for t in operands
        )
    with torch.autocast(device, enabled=False):
        return math_attention(
            query, key, value, score_mod, block_mask, scale, kernel_options, score_buffers, mask_buffers
        )


def _in_steps(
    query: Any, key: Any, value: Any, bias: Any, dropout_p: float, scale: float | None, enable_gqa: bool
) -> Any:
    """Attention with a bias that is trained, operator by operator as PyTorch documents it: the one operator has no gradient for it."""
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    weights = torch.softmax(query @ key.transpose(-2, -1) * factor + bias, -1)
    return torch.nn.functional.dropout(weights, dropout_p) @ value


def _flash(*args: Any, **kwargs: Any) -> Any:
    """The GPU's kernel: what DTensor and context parallelism know how to distribute, which they do not of the CPU's."""
    return torch.ops.aten._scaled_dot_product_flash_attention.default(*args, **kwargs)


def is_wrapper(tensor: Any) -> bool:
    """Whether a tensor is of a class, such as DTensor, that makes other calls of every operator."""
    return isinstance(tensor, torch.Tensor) and torch.utils._python_dispatch.is_traceable_wrapper_subclass(tensor)  # noqa: SLF001
