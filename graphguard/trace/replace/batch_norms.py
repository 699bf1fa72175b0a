"""Batch normalisation whose average runs over all batches (``momentum=None``), and over ranks (``nn.SyncBatchNorm``).

What its CUDA kernels fuse is in :mod:`~graphguard.trace.calls.batch_norm_steps`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules import batchnorm
from torch.nn.modules._functions import SyncBatchNorm

from graphguard.trace.calls import state
from graphguard.trace.replace.number_calls import called
from graphguard.trace.replace.overrides import known_to_scripts
from graphguard.trace.source.errors import TracingError


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
