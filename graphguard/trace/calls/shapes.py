"""Shapes of results that PyTorch takes for a matter of the data although the call's own numbers decide them, and how results lie where its shape functions say otherwise than its kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch


def shape_function(operator: Any) -> Callable[..., Any] | None:
    """What makes results of the right shapes, in place of the operator; None for nearly all."""
    return _SHAPES.get(operator)


def _ctc_loss(
    log_probs: torch.Tensor,
    _targets: torch.Tensor,
    input_lengths: Sequence[int],
    target_lengths: Sequence[int],
    *_: bool | int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """A loss for every sequence, and a number for every step and every beginning of the longest labels with blanks between."""
    batch = (len(input_lengths),) if log_probs.dim() == 3 else ()
    return log_probs.new_empty(batch), log_probs.new_empty((*batch, log_probs.shape[0], 2 * max(target_lengths) + 1))


def _one_hot(tensor: torch.Tensor, classes: int) -> torch.Tensor:
    """A row for every element, one after the other, however the elements lie."""
    return tensor.new_empty((*tensor.shape, classes))


_SHAPES: Final[dict[Any, Callable[..., Any]]] = {
    torch.ops.aten._ctc_loss.default: _ctc_loss,  # noqa: SLF001
    torch.ops.aten.one_hot.default: _one_hot,
}
