"""Batch normalisation whose average runs over all batches (``momentum=None``), and over ranks (``nn.SyncBatchNorm``): its CUDA kernels in the steps that they fuse.

A batch is laid out as (samples, channels, ...); statistics are per channel and at least float32, as the kernels accumulate.  The formulas are those of
``batch_norm_stats`` and the others in PyTorch's ``Normalization.cuh``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules import batchnorm
from torch.nn.modules._functions import SyncBatchNorm

from graphguard.trace import state
from graphguard.trace.errors import TracingError
from graphguard.trace.number_calls import called
from graphguard.trace.overrides import known_to_scripts


def install() -> None:
    """Statistics of empty batches are left out by a mask, whose size a recording does not know: here no batch is empty, so that nothing is left out."""
    original = SyncBatchNorm.forward

    @functools.wraps(original)
    def forward(ctx: Any, batch: torch.Tensor, *others: Any) -> Any:
        if state.current_recorder() is None:
            return original(ctx, batch, *others)
        weight, bias, mean, variance, eps, momentum, *group = others
        if not all(isinstance(size, int) and size > 0 for size in batch.shape):
            raise TracingError(
                "unsupported-operator", "batch normalisation over ranks of a batch that may be empty is not traced"
            )

        def run(mean: Any, variance: Any, share: Any) -> Any:
            return original(ctx, batch, weight, bias, mean, variance, eps, share, *group)

        with _without_mask():
            return _averaged(run, (mean, variance), momentum)

    SyncBatchNorm.forward = staticmethod(forward)
    batchnorm.float = functools.partial(called, float)  # of the number of batches
    original_norm = torch.nn.functional.batch_norm
    torch.nn.functional.batch_norm = known_to_scripts(original_norm, _averaging(original_norm))


def _averaging(original: Callable[..., Any]) -> Callable[..., Any]:
    """``batch_norm``, whose kernels want to know the weight of a batch, which may be one in as many as there were."""

    @functools.wraps(original)
    def batch_norm(
        input: torch.Tensor,  # noqa: A002  # PyTorch's name for it
        running_mean: torch.Tensor | None,
        running_var: torch.Tensor | None,
        weight: Any = None,
        bias: Any = None,
        training: bool = False,
        momentum: Any = 0.1,
        eps: float = 1e-5,
    ) -> torch.Tensor:
        def run(mean: Any, variance: Any, share: Any) -> torch.Tensor:
            return original(input, mean, variance, weight, bias, training, share, eps)

        return _averaged(run, (running_mean, running_var), momentum)

    return batch_norm


def _averaged(run: Callable[[Any, Any, Any], Any], running: tuple[Any, Any], momentum: Any) -> Any:
    """``run(mean, variance, momentum)``; a weight that the data decides is given to the statistics afterwards."""
    if not isinstance(momentum, torch.SymFloat) or running[0] is None or running[1] is None:
        return run(running[0], running[1], momentum)
    own = [torch.zeros_like(each) for each in running]
    result = run(own[0], own[1], 1.0)  # which leaves those of this batch there
    with torch.no_grad():
        for average, each in zip(running, own, strict=True):
            average.mul_(1 - momentum).add_(each * momentum)
    return result


@contextmanager
def _without_mask() -> Iterator[None]:
    """PyTorch leaves the mask out where it captures a graph of CUDA calls."""
    asked = torch.cuda.is_current_stream_capturing
    torch.cuda.is_current_stream_capturing = lambda: True
    try:
        yield
    finally:
        torch.cuda.is_current_stream_capturing = asked


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
