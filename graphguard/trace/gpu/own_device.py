"""The CUDA device of a rank: one, whichever number a program gives it.

A launcher gives every process a device of its own, and programs name it as ``cuda``, ``cuda:0`` where it is the only one that they see, or by their local rank.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from graphguard.trace.calls import state
from graphguard.trace.calls.kernels import Kernels

_index: list[int] = [0]
_DEVICES = frozenset(("device", "fake_device", "_fake_device"))


def index() -> int:
    """Its number."""
    return _index[0]


def device() -> torch.device:
    """The device itself."""
    return torch.device("cuda", _index[0])


def choose(wanted: Any) -> None:
    """From now on the device has this number, which tensors from before do not get."""
    number = wanted if isinstance(wanted, int) else torch.device(wanted).index
    if number is None or number < 0 or number == _index[0]:
        return
    _index[0] = number
    Kernels.answers.clear()
    recorder = state.current_recorder()
    if recorder is not None:
        recorder.kernels.forget_devices()


def instead_of(given: Any) -> Any:
    """The device where any of CUDA is named; all else as it is."""
    if isinstance(given, bool) or not isinstance(given, int | str | torch.device):
        return given
    named = (
        isinstance(given, int) or (given.type if isinstance(given, torch.device) else given.partition(":")[0]) == "cuda"
    )
    return device() if named else given


def install() -> None:
    """Have every fake tensor on CUDA lie on the device."""
    original = FakeTensor.__new__

    @functools.wraps(original)
    def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
        given = (*args[:2], *map(instead_of, args[2:3]), *args[3:])  # a mode, memory, a device
        return original(
            cls, *given, **{key: instead_of(value) if key in _DEVICES else value for key, value in kwargs.items()}
        )

    FakeTensor.__new__ = new
