"""Initialisers of parameters that look at the numbers they have drawn."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import nn

from graphguard.trace.calls import state


def install() -> None:
    """``trunc_normal_`` draws until every number is within its bounds; while a program is recorded it takes the inverse of the distribution instead, as PyTorch did before 2.13."""
    original = nn.init._no_grad_trunc_normal_

    @functools.wraps(original)
    def truncated(
        tensor: torch.Tensor, mean: float, std: float, a: float, b: float, generator: torch.Generator | None = None
    ) -> Any:
        if state.current_recorder() is None or tensor.is_meta:
            return original(tensor, mean, std, a, b, generator=generator)
        low, high = (math.erf((bound - mean) / std / math.sqrt(2.0)) for bound in (a, b))
        with torch.no_grad():
            tensor.uniform_(low, high, generator=generator).erfinv_()
            return tensor.mul_(std * math.sqrt(2.0)).add_(mean).clamp_(min=a, max=b)

    nn.init._no_grad_trunc_normal_ = truncated
