"""What a GPU answers to programs that ask which of PyTorch's attention kernels takes their tensors (``torch.backends.cuda.can_use_flash_attention`` and its kin).

Where one of them takes what it is asked about, programs call it by name; where none does, they give up.  The answers are those of PyTorch's documented limits
on the device that is recorded for; no cuDNN is there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_HALF = (torch.float16, torch.bfloat16)
_LARGEST_FLASH = 256


def answers() -> dict[str, Callable[..., bool]]:
    """By the names that they have in ``torch._C``."""
    return {
        "_can_use_flash_attention": _flash,
        "_can_use_mem_efficient_attention": _efficient,
        "_can_use_cudnn_attention": lambda *_: False,
    }


def _flash(params: Any, debug: bool = False) -> bool:  # noqa: ARG001 - PyTorch prints why not
    width = params.query.shape[-1]
    widths_fit = width % 8 == 0 and width <= _LARGEST_FLASH and params.value.shape[-1] == width
    return _like(params, _HALF) and widths_fit and params.attn_mask is None


def _efficient(params: Any, debug: bool = False) -> bool:  # noqa: ARG001
    if not _like(params, (torch.float32, *_HALF)) or params.enable_gqa:
        return False
    step = 4 if params.query.dtype == torch.float32 else 8
    mask = params.attn_mask
    return all(t.shape[-1] % step == 0 for t in (params.query, params.value)) and not (
        mask is not None and mask.requires_grad
    )


def _like(params: Any, types: tuple[torch.dtype, ...]) -> bool:
    """Four dims, and one type of these."""
    operands = (params.query, params.key, params.value)
    return params.query.dtype in types and all(t.dim() == 4 and t.dtype == params.query.dtype for t in operands)
