"""Pinned memory: which memory a tensor lies in is no part of a program, but a tensor that is pinned later is copied.

PyTorch pins memory where there is a device to copy it to, and refuses it elsewhere, or where it traces; here it is recorded with and without one.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from graphguard.trace.calls import state
from graphguard.trace.replace.overrides import known_to_scripts, overridable


def install() -> None:
    """Let programs pin memory while they are recorded."""
    torch.tensor = known_to_scripts(torch.tensor, _made(torch.tensor))
    torch.Tensor.pin_memory = overridable(torch.Tensor.pin_memory, _pinned(torch.Tensor.pin_memory))
    torch.Tensor.is_pinned = overridable(torch.Tensor.is_pinned, _is_pinned(torch.Tensor.is_pinned))


def without_pinning(kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an operator that makes memory, which lies anywhere."""
    return {**kwargs, "pin_memory": False}


def note(result: Any) -> None:
    """Remember that a tensor was made in pinned memory."""
    recorder = state.current_recorder()
    if recorder is not None and isinstance(result, torch.Tensor):
        recorder.pinned.add(recorder.ref(recorder.faked(result)).storage)


def _made(original: Any) -> Any:
    @functools.wraps(original)
    def tensor(*args: Any, **kwargs: Any) -> Any:
        if not kwargs.get("pin_memory") or state.current_recorder() is None:
            return original(*args, **kwargs)
        made = original(*args, **without_pinning(kwargs))
        note(made)
        return made

    return tensor


def _pinned(original: Any) -> Any:
    def pin_memory(self: Any, *args: Any, **kwargs: Any) -> Any:
        if state.current_recorder() is None:
            return original(self, *args, **kwargs)
        if self.device.type != "cpu":
            raise RuntimeError(f"cannot pin '{self.type()}' only dense CPU tensors can be pinned")
        if self.is_pinned():
            return self
        copy = self.clone()
        note(copy)
        return copy

    return pin_memory


def _is_pinned(original: Any) -> Any:
    def is_pinned(self: Any, *args: Any, **kwargs: Any) -> bool:
        recorder = state.current_recorder()
        if recorder is None:
            return bool(original(self, *args, **kwargs))
        return recorder.ref(recorder.faked(self)).storage in recorder.pinned

    return is_pinned
