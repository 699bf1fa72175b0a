"""Tensors of the program's own classes, as ``Tensor.as_subclass`` makes them, while fake tensors stand in for all tensors.

The class that such a tensor gets derives from the program's and is a fake tensor's as well, so that its ``__torch_function__``, methods and attributes work.  A class that takes operators apart by
``__torch_dispatch__`` is recorded where it wraps a tensor (``Tensor._make_wrapper_subclass``), and is one diagnostic here.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from graphguard.trace.calls import state
from graphguard.trace.source.errors import TracingError

ASSUMED = "{} is asked for by isinstance: a tensor's class is recorded as one that derives from it"
_PASSES_ON = torch._C._disabled_torch_dispatch_impl  # noqa: SLF001 - what types without a dispatch of their own have


class _Fake(FakeTensor):
    """A fake tensor whose functions give what a tensor's do: of the class that they are called on."""


_FUNCTION: Any = classmethod(torch.Tensor.__torch_function__.__func__)
_Fake.__torch_function__ = _FUNCTION  # PyTorch replaces what the body of such a class says


def install() -> None:
    """Replace ``Tensor.as_subclass`` while a program is recorded."""
    original = torch.Tensor.as_subclass

    def as_subclass(self: Any, cls: Any) -> Any:
        """See ``torch.Tensor.as_subclass``."""
        if state.current_recorder() is None or not isinstance(self, FakeTensor):
            return original(self, cls)
        return _reclassed(torch.ops.aten.alias.default(self), cls)

    torch.Tensor.as_subclass = as_subclass


def _reclassed(tensor: Any, cls: Any) -> Any:
    """The fake tensor with the program's class among its own."""
    if cls is torch.Tensor:
        cls = FakeTensor
    elif not issubclass(cls, FakeTensor):
        recorder = state.current_recorder()
        assert recorder is not None
        recorder.assumed.add(ASSUMED.format(cls.__qualname__))
        cls = _fake(cls)
    tensor.__class__ = cls
    return tensor


@cache
def _fake(cls: Any) -> type:
    """A class that is the program's and a fake tensor's."""
    if getattr(cls, "__torch_dispatch__", _PASSES_ON) is not _PASSES_ON:
        message = f"a tensor that becomes a {cls.__qualname__}, which has a __torch_dispatch__, cannot be recorded\nmake it by torch.Tensor._make_wrapper_subclass around a tensor that it holds"
        raise TracingError("trace-error", message)
    both: Any = type(cls)(cls.__name__, (cls, _Fake), {"__module__": cls.__module__, "__qualname__": cls.__qualname__})
    if getattr(cls.__torch_function__, "__func__", None) is torch.Tensor.__torch_function__.__func__:
        both.__torch_function__ = _FUNCTION
    return both
