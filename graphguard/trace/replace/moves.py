"""Tensors that get other memory while a program is recorded: ``p.data = q``, ``model.to(...)``, ``swap_tensors``, ``share_memory_``.

PyTorch keeps the object, so that an optimiser made before goes on with the new memory.  For fake tensors it does something else in each of these places (new parameters, a stale
device, an error); here they do what real ones do.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from graphguard.trace.calls import state
from graphguard.trace.calls.tape import Tape
from graphguard.trace.source.errors import TracingError

_memory: Any = torch._C.TensorBase.data  # noqa: SLF001
_convert: Callable[..., Any] = nn.Module._apply  # noqa: SLF001
_OUTSIDE = (
    "a tensor that was made before the recording began moves to another device after it was used\n"
    "fix: build the model inside the check"
)


def install() -> None:
    """Have memory exchanged as for real tensors."""
    nn.Module._apply = _conversion(nn.Module._apply)  # noqa: SLF001
    torch.Tensor.data = property(_memory.__get__, _set_memory)
    torch.Tensor.share_memory_, torch.Tensor.is_shared = _sharing(torch.Tensor.share_memory_, torch.Tensor.is_shared)
    # who else knows a tensor that is to be swapped: the fake mode, which takes note of everything that it sees, does not count
    torch.utils.weakref = SimpleNamespace(
        getweakrefs=lambda tensor: weakref.getweakrefs(tensor) if state.current_recorder() is None else []
    )


def _conversion(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def convert(self: nn.Module, fn: Any, recurse: bool = True) -> Any:
        return original(self, fn, recurse) if state.current_recorder() is None else _converted(self, fn, recurse)

    return convert


def _sharing(
    share: Callable[..., Any], is_shared: Callable[..., bool]
) -> tuple[Callable[..., Any], Callable[..., bool]]:
    """Every rank is a process of its own, so that memory shared with others is memory."""

    @functools.wraps(share)
    def share_memory(self: Any) -> Any:
        recorder = state.current_recorder()
        if recorder is None or _takes_itself_apart(self):
            return share(self)
        recorder.shared.add(recorder.ref(recorder.faked(self)).storage)
        return self

    @functools.wraps(is_shared)
    def has_shared_memory(self: Any) -> bool:
        recorder = state.current_recorder()
        if recorder is None or _takes_itself_apart(self):
            return is_shared(self)
        return bool(self.is_cuda) or recorder.ref(recorder.faked(self)).storage in recorder.shared

    return share_memory, has_shared_memory


def _set_memory(tensor: Any, value: Any) -> None:
    """``tensor.data = value``: from now on, ``tensor`` shows the memory of ``value``, in its type and on its device."""
    recorder = state.current_recorder()
    if recorder is None or not isinstance(value, torch.Tensor) or _takes_itself_apart(tensor):
        _memory.__set__(tensor, value)
    elif isinstance(tensor, FakeTensor):
        value = recorder.faked(value)
        _memory.__set__(tensor, value)
        tensor.fake_device = value.device
    else:
        _set_memory_outside(recorder, tensor, recorder.faked(value))


def _set_memory_outside(recorder: Tape, tensor: Any, value: FakeTensor) -> None:
    """The same for a real tensor, made before the recording began: another stands in for it, or takes its place where a real one cannot be on that device."""
    if value.device.type == tensor.device.type:
        _memory.__set__(tensor, recorder.stand_in(tensor, value))
    elif tensor.grad is not None or tensor.grad_fn is not None:
        raise TracingError("trace-error", _OUTSIDE)
    else:
        made = nn.Parameter(value, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else value.detach()
        torch.utils.swap_tensors(tensor, made)


def _takes_itself_apart(tensor: Any) -> bool:
    return not isinstance(tensor, FakeTensor) and is_traceable_wrapper_subclass(tensor)


def _converted(module: nn.Module, fn: Any, recurse: bool) -> nn.Module:
    """What ``nn.Module._apply`` does to modules of real tensors."""
    if recurse:
        for child in module.children():
            child._apply(fn)  # noqa: SLF001
    parameters, buffers = module._parameters, module._buffers  # noqa: SLF001
    for name, parameter in parameters.items():
        if parameter is not None:
            change = _as_wrapper if _takes_itself_apart(parameter) else _changed
            parameters[name] = change(parameter, fn)
    for name, buffer in buffers.items():
        if buffer is not None:
            buffers[name] = fn(buffer)
    return module


def _as_wrapper(parameter: Any, fn: Any) -> Any:
    """What PyTorch does with a parameter such as DTensor: it swaps the tensors."""
    holder = nn.Module()
    holder._parameters["parameter"] = parameter  # noqa: SLF001
    return _convert(holder, fn, False)._parameters["parameter"]  # noqa: SLF001


def _changed(parameter: Any, fn: Any) -> Any:
    gradient = parameter.grad
    with torch.no_grad():
        value = fn(parameter)
    if _keeps_its_object(parameter, value):
        parameter.grad = None
        parameter.data = value
    else:
        parameter = nn.Parameter(value, parameter.requires_grad)
    if gradient is not None:
        with torch.no_grad():
            value = fn(gradient)
        if _keeps_its_object(gradient, value):
            gradient.data = value
        else:
            gradient = value.requires_grad_(gradient.requires_grad)
        parameter.grad = gradient
    return parameter


def _keeps_its_object(tensor: Any, value: Any) -> bool:
    """Whether PyTorch sets ``tensor.data``: not from or to the meta device, and not where the program has asked for new parameters."""
    alike = (tensor.device.type == "meta") == (value.device.type == "meta")
    return alike and not torch.__future__.get_overwrite_module_params_on_conversion()
