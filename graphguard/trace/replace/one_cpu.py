"""The CPU, which has no numbers: a tensor that is moved to ``cpu:0`` lies on ``cpu``.  Fake tensors keep the number, and programs that compare devices take it for another one."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

_DEVICES = frozenset(("device", "fake_device", "_fake_device"))


def install() -> None:
    """Have fake tensors lie where real ones do."""
    original = FakeTensor.__new__

    @functools.wraps(original)
    def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
        given = (*args[:2], *map(_unnumbered, args[2:3]), *args[3:])  # a mode, memory, a device
        named = {key: _unnumbered(value) if key in _DEVICES else value for key, value in kwargs.items()}
        return original(cls, *given, **named)

    FakeTensor.__new__ = new


def _unnumbered(given: Any) -> Any:
    return torch.device("cpu") if isinstance(given, torch.device) and given.type == "cpu" else given
