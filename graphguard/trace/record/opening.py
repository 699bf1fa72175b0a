"""Operators that a program or a library registers (``torch.library``): what their Python code does is recorded, operator by operator, as eager PyTorch runs it.

Only that code says whether an operator communicates, draws, asks for its rank or keeps a state.  An operator stays closed, a function of its arguments that nobody
looks into, where a comment declares what it is, or where its code cannot be recorded: kernels in C++ and Triton, arrays of numpy.  The verdict then lists that.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import torch
from torch._subclasses import fake_tensor

from graphguard.trace.calls.constants import storage_of, tensors_in
from graphguard.trace.calls.events import Event
from graphguard.trace.calls.kinds import Kind
from graphguard.trace.calls.tape import Tape
from graphguard.trace.source.assumptions import assumptions, said
from graphguard.trace.source.errors import TracingError, handled, is_data_dependence
from graphguard.trace.source.mentions import distributed_name, names_collective
from graphguard.trace.source.sources import is_own_code

# What PyTorch falls back on where a device has no kernel of its own, in this order.
_FOR_ALL = ("CompositeExplicitAutogradNonFunctional", "CompositeExplicitAutograd", "CompositeImplicitAutograd")
_REGISTERED = re.compile(r"^(\w+)(?:\[alias\])?: registered at (.+):\d+ ::", re.MULTILINE)
_NOT_RECORDABLE = (
    NotImplementedError,
    ImportError,
    fake_tensor.UnsupportedFakeTensorException,
    fake_tensor.UnsupportedOperatorException,
)
_NO_MEMORY = re.compile("data pointer|data_ptr|doesn't have storage|Cannot access storage", re.IGNORECASE)

_Entry = torch._C._RestorePythonTLSSnapshot  # noqa: SLF001 - where the operator that is being recorded was called
_AUTOCAST = (("cpu", torch._C.DispatchKey.AutocastCPU), ("cuda", torch._C.DispatchKey.AutocastCUDA))  # noqa: SLF001
_FIX = "fix: give it an implementation in PyTorch, as torch.library.register_kernel does, for the device of the check"


def opened(recorder: Tape, kind: Kind, args: Any, kwargs: Any) -> Any:
    """What an operator's own code returns, recorded; ``NotImplemented`` where the operator stays closed.

    Raises what the code raises, and ``TracingError`` where an operator that cannot be recorded communicates.
    """
    name = kind.operator.name()
    if name in recorder.declared or _is_declared(recorder):
        recorder.declared.add(name)
        return NotImplemented
    devices = dict.fromkeys((_device_of(args, kwargs), "cuda", "cpu"))
    own = next(iter(devices))
    for device in devices:
        key = torch._C._dispatch_key_for_device(device)  # noqa: SLF001 - as PyTorch finds a device's kernel
        if not _is_in_python(kind.name, kind.operator._overloadname, key):  # noqa: SLF001
            continue
        out = _recorded(recorder, kind, key, args, kwargs)
        if out is not NotImplemented:
            if device != own and _is_there(kind, own):
                recorder.assumed.add(f"{_named(kind)} computes on {own} what its implementation for {device} does")
            recorder.opened.add(name)
            return out
    if names_collective(kind.name.partition("::")[2]):
        message = f"{_named(kind)} communicates, by its name, and its code cannot be recorded"
        raise TracingError("unsupported-operator", f"{message}\n{_FIX}")
    recorder.assumed.add(f"{_named(kind)} is a function of its arguments alone: its code cannot be recorded")
    return NotImplemented


def apart(kind: Kind, out: Any, operands: list[torch.Tensor]) -> Any:
    """The results of a closed operator in memory of their own, where its schema says that they have it and its shape function returns an operand."""
    memories = {storage_of(tensor) for tensor in operands}
    shared = [r.alias_info is not None for r in kind.operator._schema.returns]  # noqa: SLF001
    outs = out if isinstance(out, (list, tuple)) else (out,)
    if any(shared) or not any(isinstance(t, torch.Tensor) and storage_of(t) in memories for t in outs):
        return out
    fresh = [torch.empty_like(t) if isinstance(t, torch.Tensor) else t for t in outs]
    return fresh[0] if not isinstance(out, (list, tuple)) else type(out)(fresh)


@contextmanager
def autocast_as_called() -> Iterator[None]:
    """Inside, operators are cast as where the program called the one that is recorded; a recorder stands below autocast."""
    with _Entry():
        casting = [key for device, key in _AUTOCAST if torch.is_autocast_enabled(device)]
    with ExitStack() as stack:
        for key in casting:
            stack.enter_context(torch._C._SetExcludeDispatchKeyGuard(key, False))  # noqa: SLF001
        yield


def _recorded(recorder: Tape, kind: Kind, key: str, args: Any, kwargs: Any) -> Any:
    start = len(recorder.events)
    kernel = torch.library.get_kernel(kind.operator, key)
    keys = torch._C.DispatchKeySet(torch._C._parse_dispatch_key(key))  # noqa: SLF001
    try:
        # below neither autograd nor autocast, as an operator's code is; in inference mode there is no autograd to be below
        with autocast_as_called() if torch.is_inference_mode_enabled() else _Entry(), recorder, handled():
            return kernel.call_boxed(keys, *args, **kwargs)
    except Exception as error:
        if not cannot_be_recorded(error) or any(map(_has_effect, recorder.events[start:])):
            raise
        if (name := distributed_name(error.__traceback__)) is not None:
            message = f"{_named(kind)} speaks of other ranks ('{name}'), and its code cannot be recorded"
            raise TracingError("unsupported-operator", f"{message}\nfound: {_reason(error)}\n{_FIX}") from error
    del recorder.events[start:]
    return NotImplemented


def cannot_be_recorded(error: Exception) -> bool:
    """Whether code failed because it met tensors without elements, or lacks what only another machine has."""
    if isinstance(error, (TracingError, *_NOT_RECORDABLE)) or is_data_dependence(error):
        return True
    return isinstance(error, RuntimeError) and _NO_MEMORY.search(str(error)) is not None


def _named(kind: Kind) -> str:
    return f"torch.ops.{kind.operator}".removesuffix(".default")


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}".removeprefix("TracingError: ")


def _has_effect(event: Event) -> bool:
    if event.draw is not None or isinstance(event.op, str):
        return event.op != "constant"
    return event.kind is not None and event.kind.may_communicate


def _device_of(args: Any, kwargs: Any) -> str:
    tensor = next(iter(tensors_in((args, kwargs))), None)
    device = tensor.device if tensor is not None else kwargs.get("device") or torch.get_default_device()
    kind = torch.device(device).type
    return "cpu" if kind == "meta" else kind


def _is_in_python(name: str, overload: str, key: str) -> bool:
    """Whether the kernel that PyTorch would take is a Python function."""
    files = dict(_REGISTERED.findall(torch._C._dispatch_dump(f"{name}.{overload}" if overload != "default" else name)))  # noqa: SLF001
    file = next((files[at] for at in (key, *_FOR_ALL) if at in files), "")
    return file.endswith(".py") or file.startswith("<")


def _is_there(kind: Kind, device: str) -> bool:
    key = torch._C._dispatch_key_for_device(device)  # noqa: SLF001
    has = torch._C._dispatch_has_kernel_for_dispatch_key  # noqa: SLF001
    return any(has(kind.operator.name(), at) for at in (key, *_FOR_ALL))


def _is_declared(recorder: Tape) -> bool:
    """Whether a comment says what the operator is that is called here."""
    stack, forward = recorder.places()
    calls, function = (tuple(recorder.stacks.frames(index)) for index in (stack, forward))
    files = {frame.span.file for frame in (*calls, *function)}
    return said(calls, function, {file: found for file in files if (found := _comments(file))}) is not None


@cache
def _comments(file: str) -> list[tuple[int, int, int, str]]:
    return assumptions("".join(linecache.getlines(file)).encode()) if is_own_code(file) else []
