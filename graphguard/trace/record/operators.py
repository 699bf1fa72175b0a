"""What operators make of fake tensors, worked out by the worker for the children to come.

An operator on shapes that this process has not seen costs many times what a known one costs.  A child notes those it had to work out itself, and sends
them as plain data; the worker works them out once more when it has nothing else to do, so that whatever is forked later finds them.  Nothing that a child
computed is taken over: a call is kept only where the worker, which runs no user code, comes to the same result.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from graphguard.ir.codec import dumps, loads
from graphguard.trace.calls.kernels import Kernels
from graphguard.trace.calls.kinds import kind_of
from graphguard.trace.record.branches import Sizes

# Beyond this many entries, of a few kilobytes each, nothing more is learnt.
MOST_ENTRIES = 30_000
_LONGEST = 64
_NAMESPACES = ("aten", "gg")
_CONSTANTS = {
    str(value): value
    for value in vars(torch).values()
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format)
}


def new_fake_mode() -> FakeTensorMode:
    """A fake mode in which sizes are concrete unless the data decides them."""
    with _no_stacks():
        mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=Sizes(), static_shapes=True)
    mode.cache_enabled = False  # see :mod:`~graphguard.trace.calls.kernels`
    return mode


@contextlib.contextmanager
def _no_stacks() -> Iterator[None]:
    """A fake mode keeps where it was made, every line quoted from its file, for a message that nobody is shown."""
    usual = fake_tensor.traceback
    fake_tensor.traceback = SimpleNamespace(extract_stack=list, format_list=usual.format_list)
    try:
        yield
    finally:
        fake_tensor.traceback = usual


class Notes:
    """The operator calls of a recording whose answer had to be worked out, each as JSON text."""

    def __init__(self) -> None:
        self.calls: dict[str, None] = {}

    def take(self, func: Any, args: Sequence[object], kwargs: Mapping[str, object], out: object) -> None:
        """Note a call, unless it has something that plain data does not describe."""
        with contextlib.suppress(_IndescribableError):
            self.calls[_call(func, args, kwargs, out)] = None


def rehearse_call(text: str) -> bool:
    """Work out a noted call, so that its answer is known; False, and nothing is kept, where the result is not the one noted."""
    known = len(Kernels.answers)
    if known >= MOST_ENTRIES:
        return False
    try:
        agrees = _worked_out(text)
    except Exception:  # noqa: BLE001 - whatever an operator raises: the child that needs the call works it out for itself
        agrees = False
    while not agrees and len(Kernels.answers) > known:
        Kernels.answers.popitem()
    return agrees


def _worked_out(text: str) -> bool:
    name, overload, dtype, arguments, keywords, _ = loads(text.encode())
    namespace, _, plain_name = name.rpartition(".")
    func = getattr(getattr(torch.ops.gg if namespace == "gg" else torch.ops.aten, plain_name), overload)
    mode = new_fake_mode()
    usual = torch.get_default_dtype()
    torch.set_default_dtype(_CONSTANTS[dtype])
    try:
        with mode:
            reader = _Reader()
            args = [reader.value(each) for each in arguments]
            kwargs = {str(key): reader.value(each) for key, each in keywords.items()}
            with torch._C._AutoDispatchBelowADInplaceOrView():  # noqa: SLF001 - where a recorder stands when it calls the operator
                out = Kernels(mode).run(kind_of(func), args, kwargs)
        return bool(_call(func, args, kwargs, out) == text)
    finally:
        torch.set_default_dtype(usual)


class _IndescribableError(Exception):
    """A call with something that plain data does not describe."""


def _call(func: Any, args: Iterable[object], kwargs: Mapping[str, object], out: object) -> str:
    """A call with its result as JSON text; raises ``_IndescribableError``."""
    own = isinstance(func, torch._ops.OpOverload) and func.namespace in _NAMESPACES  # noqa: SLF001
    if not own or torch.is_inference_mode_enabled():
        raise _IndescribableError
    name, _, overload = str(func).removeprefix("aten.").rpartition(".")
    writer = _Writer()
    row = [
        name,
        overload,
        str(torch.get_default_dtype()),
        [writer.value(each) for each in args],
        {key: writer.value(each) for key, each in kwargs.items()},
        # a list or a tuple, depending on how the operator was reached
        writer.value(list(out) if isinstance(out, tuple) else out),
    ]
    return dumps(row).decode()


class _Writer:
    """Values as plain data; a tensor that comes up again is its number."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        self._memories: dict[int, int] = {}

    def value(self, value: object) -> Any:
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if type(value) in (list, tuple):
            return self._sequence(value)
        if isinstance(value, FakeTensor):
            return self._tensor(value)
        if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
            return {"constant": str(value)}
        if isinstance(value, torch.device):
            return {"device": str(value)}
        raise _IndescribableError

    def _sequence(self, value: Any) -> Any:
        if len(value) > _LONGEST:
            raise _IndescribableError
        return {type(value).__name__: [self.value(each) for each in value]}

    def _tensor(self, tensor: FakeTensor) -> Any:
        if id(tensor) in self._seen:
            return {"again": self._seen[id(tensor)]}
        self._seen[id(tensor)] = len(self._seen)
        plain = (
            tensor.layout is torch.strided
            and tensor.device.type == "cpu"
            and tensor.constant is None
            and not tensor._has_symbolic_sizes_strides  # noqa: SLF001
            and type(tensor.untyped_storage().nbytes())
            is int  # memory of a size that the data decides may show as a tensor of known shape
            and not (tensor.is_conj() or tensor.is_neg() or tensor.is_quantized)
        )
        if not plain:
            raise _IndescribableError
        return {
            "tensor": [
                str(tensor.dtype),
                list(tensor.shape),
                list(tensor.stride()),
                tensor.storage_offset(),
                tensor.untyped_storage().nbytes(),
                tensor.requires_grad,
                self._memories.setdefault(tensor.untyped_storage()._cdata, len(self._memories)),  # noqa: SLF001
            ]
        }


class _Reader:
    """The opposite of ``_Writer``, inside a fake mode."""

    def __init__(self) -> None:
        self._tensors: list[torch.Tensor] = []
        self._memories: dict[int, torch.Tensor] = {}

    def value(self, row: Any) -> Any:
        if not isinstance(row, dict):
            return row
        ((kind, content),) = row.items()
        return self._kinds()[kind](content)

    def _kinds(self) -> dict[str, Callable[[Any], Any]]:
        return {
            "float": float,
            "list": lambda rows: [self.value(each) for each in rows],
            "tuple": lambda rows: tuple(self.value(each) for each in rows),
            "again": lambda number: self._tensors[number],
            "tensor": self._tensor,
            "constant": lambda name: _CONSTANTS[name],
            "device": torch.device,
        }

    def _tensor(self, row: Any) -> torch.Tensor:
        dtype, shape, strides, offset, size, differentiable, memory = row
        kind = _CONSTANTS[dtype]
        if memory not in self._memories:
            self._memories[memory] = torch.empty(size, dtype=torch.uint8, device="cpu")
        whole = self._memories[memory][: size // kind.itemsize * kind.itemsize].view(kind)
        tensor = whole.as_strided(shape, strides, offset).detach().requires_grad_(bool(differentiable))
        self._tensors.append(tensor)
        return tensor
