"""Attributes that programs give to tensors under the name of a method: Megatron's older layers say ``bias.stride = stride``.

PyTorch's kernels never look a method up by name, so to the program that is an attribute like any other.  What computes shapes of fake tensors is written in
Python and does: there the method is found, and everywhere else what the program set.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

_NAMES = ("stride",)
_OURS = ("torch", "graphguard")


class _Method:
    """A method of tensors which a tensor's own attribute hides from the program alone."""

    def __init__(self, name: str) -> None:
        self._name, self._method = name, getattr(torch.Tensor, name)

    def __get__(self, tensor: Any, owner: Any = None) -> Any:
        if tensor is None:
            return self._method
        if self._name in tensor.__dict__:
            caller = sys._getframe(1)  # noqa: SLF001 - who looks the name up decides what it means
            if not _reads_methods(caller.f_globals.get("__name__", "")):
                return tensor.__dict__[self._name]
        return self._method.__get__(tensor, owner)

    def __set__(self, tensor: Any, value: Any) -> None:
        tensor.__dict__[self._name] = value

    def __delete__(self, tensor: Any) -> None:
        del tensor.__dict__[self._name]


def _reads_methods(module: str) -> bool:
    """Whether code of a module means the method."""
    return module.partition(".")[0] in _OURS


def install() -> None:
    """Once, before any program is recorded."""
    for name in _NAMES:
        for kind in (FakeTensor, torch.nn.Parameter):  # parameters of the caller's are read before they are recorded
            setattr(kind, name, _Method(name))
