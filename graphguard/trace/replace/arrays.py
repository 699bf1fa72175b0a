"""Arrays of tensors and tensors of arrays, while a program is recorded: they show one memory, where PyTorch copies nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import dlpack
from torch.utils._python_dispatch import _disable_current_modes, is_traceable_wrapper_subclass

from graphguard.trace.calls import state
from graphguard.trace.calls.tape import Tape
from graphguard.trace.replace.number_calls import note_shown
from graphguard.trace.replace.overrides import known_to_scripts
from graphguard.trace.replace.shown_arrays import REFUSED, shown
from graphguard.trace.source.errors import TracingError

_EXPORTED = (
    "a tensor of a recording was exported by a 'to_dlpack' that was imported before GraphGuard was\n"
    "fix: call torch.from_dlpack(tensor), or torch.utils.dlpack.to_dlpack by its whole name"
)
_modes = torch._C._len_torch_dispatch_stack  # noqa: SLF001 - whether what is called now is recorded


def install() -> None:
    """Let arrays and tensors show one memory."""
    for name in ("from_numpy", "as_tensor", "asarray", "frombuffer"):
        original = getattr(torch, name)
        setattr(torch, name, known_to_scripts(original, functools.wraps(original)(_sharing(original))))
    torch.from_dlpack = dlpack.from_dlpack = functools.wraps(torch.from_dlpack)(_from_dlpack(torch.from_dlpack))
    dlpack.to_dlpack = functools.wraps(dlpack.to_dlpack)(_exported(dlpack.to_dlpack))
    torch._C._from_dlpack = _imported(torch._C._from_dlpack)  # noqa: SLF001 - what both call
    torch.Tensor.__dlpack__ = functools.wraps(torch.Tensor.__dlpack__)(_exported(torch.Tensor.__dlpack__))
    torch.Tensor.numpy = functools.wraps(torch.Tensor.numpy)(_numpy(torch.Tensor.numpy))
    torch.Tensor.__array__ = functools.wraps(torch.Tensor.__array__)(_array(torch.Tensor.__array__))


def _recording() -> Tape | None:
    """The recorder, where what is called now is part of the program."""
    recorder = state.current_recorder()
    return recorder if recorder is not None and not recorder.paused and _modes() else None


def _sharing(original: Callable[..., Any]) -> Callable[..., Any]:
    def make(data: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = _recording()
        if recorder is None or isinstance(data, torch.Tensor | list | tuple | bool | int | float | complex):
            return original(data, *args, **kwargs)
        with _disable_current_modes():
            real = original(data, *args, **kwargs)
        if not _is_elsewhere(real):
            return original(data, *args, **kwargs)  # a copy, as an operator makes it
        return _made(recorder, real, data)

    return make


def _is_elsewhere(real: torch.Tensor) -> bool:
    """Whether a tensor lies in memory that PyTorch did not make."""
    return real.device.type == "cpu" and real.numel() > 0 and not real.untyped_storage().resizable()


def _made(recorder: Tape, real: torch.Tensor, source: Any) -> torch.Tensor:
    with _disable_current_modes():
        plain = real.detach()
    made = recorder.memory.made(plain, source)
    return made.requires_grad_() if real.requires_grad else made


def _from_dlpack(original: Callable[..., Any]) -> Callable[..., Any]:
    def from_dlpack(ext_tensor: Any, **kwargs: Any) -> Any:
        recorder = _recording()
        if recorder is None:
            return original(ext_tensor, **kwargs)
        fake = _fake(recorder, ext_tensor)
        if fake is not None:
            _refuse_gradients(fake)
            return fake.clone() if kwargs.get("copy") else fake.detach()
        with _disable_current_modes():
            real = original(ext_tensor, **kwargs)
        return _made(recorder, real, ext_tensor) if real.device.type == "cpu" and real.numel() else real

    return from_dlpack


def _imported(original: Callable[..., Any]) -> Callable[..., Any]:
    def imported(*args: Any) -> Any:
        made = original(*args)
        if state.current_recorder() is not None and made.numel() and made.device.type == "cpu" and not made.data_ptr():
            raise TracingError("trace-error", _EXPORTED)
        return made

    return imported


def _refuse_gradients(tensor: torch.Tensor) -> None:
    if tensor.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")


def _exported(original: Callable[..., Any]) -> Callable[..., Any]:
    def export(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = _recording()
        fake = None if recorder is None else _fake(recorder, tensor)
        if recorder is None or fake is None:
            return original(tensor, *args, **kwargs)
        _refuse_gradients(fake)
        _as_zeros(recorder, fake)
        if recorder.decides_by_data(fake):
            raise TracingError("trace-error", REFUSED)
        recorder.need_elements(fake)
        return recorder.memory.array(fake, lambda real: original(real, *args, **kwargs))

    return export


def _as_zeros(recorder: Tape, fake: FakeTensor) -> None:
    """Where memory that nobody wrote is shown as an array, nobody sees what is written there: what is open is taken for 0."""
    recorder.constants.settle((fake,), anyway=True)


def _fake(recorder: Tape, tensor: Any) -> FakeTensor | None:
    """The recorded tensor that a program means; None where it means none, or one that takes itself apart."""
    if isinstance(tensor, FakeTensor):
        return tensor if tensor.fake_mode is recorder.fake_mode and tensor.device.type != "meta" else None
    is_plain = isinstance(tensor, torch.Tensor) and not is_traceable_wrapper_subclass(tensor)
    return recorder.twin(tensor) if is_plain and tensor.device.type == "cpu" else None


def _numpy(original: Callable[..., Any]) -> Callable[..., Any]:
    def numpy(self: Any, *, force: bool = False) -> Any:
        recorder = _recording()
        fake = None if recorder is None else _fake(recorder, self)
        if recorder is None or fake is None:
            return original(self, force=force)
        _as_zeros(recorder, fake)
        if recorder.decides_by_data(fake):
            return shown(fake, note_shown, force=force)
        recorder.need_elements(fake)
        needs_gradients = fake.requires_grad and not force
        return recorder.memory.array(fake, lambda real: original(real.requires_grad_(needs_gradients), force=force))

    return numpy


def _array(original: Callable[..., Any]) -> Callable[..., Any]:
    def array(self: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = _recording()
        fake = None if recorder is None else _fake(recorder, self)
        if recorder is not None and fake is not None and recorder.decides_by_data(fake):
            raise TracingError("trace-error", REFUSED)
        return original(self, *args, **kwargs)

    return array
