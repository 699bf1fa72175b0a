"""Extensions in C++ that libraries build when they start, and of which is known what they compute: their kernels in PyTorch's own operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch

from graphguard.trace.calls.state import current_recorder


def written(name: str) -> ModuleType | None:
    """What stands for an extension; None for one that is not known."""
    functions = _EXTENSIONS.get(name)
    if functions is None:
        return None
    module = ModuleType(name)
    for function, steps in functions.items():
        setattr(module, function, steps)
    recorder = current_recorder()
    if recorder is not None:
        recorder.assumed.add(f"the C++ extension '{name}' computes what is known of it: {', '.join(functions)}")
    return module


def _multi_tensor_adam(
    chunk_size: int,  # noqa: ARG001 - the kernel's own
    skips: torch.Tensor,  # noqa: ARG001 - DeepSpeed's kernel does not read it
    lists: Sequence[Sequence[torch.Tensor]],
    lr: Any,
    beta1: float,
    beta2: float,
    epsilon: float,
    step: int,
    mode: int,
    bias_correction: int,
    weight_decay: float,
) -> None:
    """Adam (mode 0) and AdamW (mode 1) on lists of gradients, parameters and both averages, in float32 (DeepSpeed, ``multi_tensor_adam.cu``)."""
    first = 1 - beta1**step if bias_correction else 1.0
    second = 1 - beta2**step if bias_correction else 1.0
    with torch.no_grad():
        for held in zip(*lists, strict=True):
            grad, parameter, mean, square = (tensor.float() for tensor in held)
            if mode == 0:
                grad = grad + weight_decay * parameter
            mean = beta1 * mean + (1 - beta1) * grad
            square = beta2 * square + (1 - beta2) * grad * grad
            update = (mean / first) / ((square / second).sqrt() + epsilon)
            if mode == 1:
                update = update + weight_decay * parameter
            for tensor, value in zip(held[1:], (parameter - lr * update, mean, square), strict=True):
                tensor.copy_(value)


_EXTENSIONS: dict[str, dict[str, Callable[..., Any]]] = {"fused_adam": {"multi_tensor_adam": _multi_tensor_adam}}
