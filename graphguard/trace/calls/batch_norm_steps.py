"""The kernels of batch normalisation over ranks in the steps that they fuse.

A batch is laid out as (samples, channels, ...); statistics are per channel and at least float32, as the kernels accumulate.  The formulas are those of
``batch_norm_stats`` and the others in PyTorch's ``Normalization.cuh``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _dims(x: torch.Tensor) -> list[int]:
    return [dim for dim in range(x.dim()) if dim != 1]


def _along(statistic: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """A value per channel, to be computed with ``x``."""
    return statistic.view([-1 if dim == 1 else 1 for dim in range(x.dim())])


def _stats(x: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    """mean, 1 / sqrt(variance + eps)"""
    x = _wide(x)
    mean = x.mean(_dims(x))
    variance = (x - _along(mean, x)).square().mean(_dims(x))
    return mean, (variance + eps).rsqrt()


def _gather_stats(
    x: torch.Tensor,  # noqa: ARG001  # the operator's signature
    means: torch.Tensor,
    inverses: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    momentum: float,
    eps: float,
    counts: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and 1 / sqrt(variance + eps) of all, from those of every rank, (ranks, channels), and its count."""
    counts = counts.to(means.dtype).view(-1, 1)
    total = counts.sum()
    mean = (means * counts).sum(0) / total
    squares = ((inverses.pow(-2) - eps + (means - mean).square()) * counts).sum(0)
    if running_mean is not None:
        running_mean.mul_(1 - momentum).add_(mean * momentum)
    if running_var is not None:
        running_var.mul_(1 - momentum).add_(squares / (total - 1) * momentum)
    return mean, (squares / total + eps).rsqrt()


def _gather_stats_of_equals(
    x: torch.Tensor,
    means: torch.Tensor,
    inverses: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    momentum: float,
    eps: float,
    count: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As with counts, all of them the same."""
    counts = torch.full((means.size(0),), count, dtype=means.dtype, device=means.device)
    return _gather_stats(x, means, inverses, running_mean, running_var, momentum, eps, counts)


def _elemt(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor,
    inverse: torch.Tensor,
    eps: float,  # noqa: ARG001  # the operator's signature
) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) weight + bias"""
    out = (_wide(x) - _along(mean, x)) * _along(inverse, x)
    if weight is not None:
        out = out * _along(weight, x)
    if bias is not None:
        out = out + _along(bias, x)
    return out.to(x.dtype)


def _backward_reduce(
    grad: torch.Tensor,
    x: torch.Tensor,
    mean: torch.Tensor,
    inverse: torch.Tensor,
    weight: torch.Tensor | None,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
) -> tuple[torch.Tensor | None, ...]:
    """Sums of grad and of grad (x - mean), and the gradients of weight and bias."""
    grad, dims = _wide(grad), _dims(x)
    sums = grad.sum(dims)
    products = (grad * (_wide(x) - _along(mean, x))).sum(dims)
    dtype = mean.dtype if weight is None else weight.dtype
    return (
        sums if input_g else None,
        products if input_g else None,
        (products * inverse).to(dtype) if weight_g else None,
        sums.clone().to(dtype) if bias_g else None,
    )


def _backward_elemt(
    grad: torch.Tensor,
    x: torch.Tensor,
    mean: torch.Tensor,
    inverse: torch.Tensor,
    weight: torch.Tensor | None,
    sums: torch.Tensor,
    products: torch.Tensor,
    counts: torch.Tensor,
) -> torch.Tensor:
    """(grad - sums / n - (x - mean) inverse^2 products / n) inverse weight, where the counts add up to n"""
    total = counts.sum().to(mean.dtype)
    centred = _wide(x) - _along(mean, x)
    out = _wide(grad) - _along(sums / total, x) - centred * _along(inverse.square() * products / total, x)
    out = out * _along(inverse, x)
    if weight is not None:
        out = out * _along(weight, x)
    return out.to(x.dtype)


STEPS: dict[str, Callable[..., Any]] = {
    "aten::batch_norm_stats": _stats,
    "aten::batch_norm_gather_stats": _gather_stats_of_equals,
    "aten::batch_norm_gather_stats_with_counts": _gather_stats,
    "aten::batch_norm_elemt": _elemt,
    "aten::batch_norm_backward_reduce": _backward_reduce,
    "aten::batch_norm_backward_elemt": _backward_elemt,
}
"""What computes the same as each kernel by simpler operators."""
