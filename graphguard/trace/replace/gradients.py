"""Which tensors are gradients of parameters: what ``torch.autograd.grad`` gives for tensors that have names, and what lies in them at the end."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import torch

from graphguard.trace.calls import state
from graphguard.trace.replace.overrides import known_to_scripts


def install() -> None:
    """Have the results of ``torch.autograd.grad`` noted while a program is recorded."""
    original = torch.autograd.grad
    noting = functools.wraps(original)(_noting(original))
    torch.autograd.grad = known_to_scripts(original, noting)


def _noting(original: Any) -> Any:
    def grad(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        listed = inputs if isinstance(inputs, torch.Tensor) or not isinstance(inputs, Iterable) else list(inputs)
        results = original(outputs, listed, *args, **kwargs)
        recorder = state.current_recorder()
        if recorder is not None:
            for tensor, result in zip((listed,) if isinstance(listed, torch.Tensor) else listed, results, strict=False):
                if isinstance(result, torch.Tensor):
                    recorder.note_gradient(tensor, result)
        return results

    return grad
