"""Copies of recorded tensors, as the ``copy`` module makes them.

A shallow one shows the same memory.  Deep ones show new memory of the same recording, which they share as the originals share theirs; parameters' share none, and bear no marks.  Bytes (``pickle``, ``torch.save``) cannot be made of them.
"""

from __future__ import annotations

import copy
import functools
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map_only

from graphguard.trace.calls import state
from graphguard.trace.replace.classes import class_of
from graphguard.trace.source.errors import TracingError

_REAL = (torch.Tensor, torch.nn.Parameter)
_PICKLED = """a tensor is pickled here, as torch.save does, and only the data decides its bytes
fix: hand on copies of tensors, such as copy.deepcopy(model.state_dict()), instead of files and bytes"""


def install() -> None:
    """Have recorded tensors copied as calls that are recorded."""
    original = torch.Tensor.__deepcopy__

    @functools.wraps(original)
    def deepcopy(self: Any, memo: dict[Any, Any]) -> Any:
        recorder = state.current_recorder()
        if recorder is not None and type(self) in _REAL:
            recorded = recorder.twin_of(self)
            if recorded is not None:
                return copy.deepcopy(recorded, memo)
            with _disable_current_modes():  # from outside the program, such as the ranks of a device mesh
                return original(self, memo)
        if recorder is not None and isinstance(self, FakeTensor):
            memo[id(self.fake_mode)] = (
                self.fake_mode
            )  # an attribute of every recorded tensor, and no copy of it records
            if class_of(self) is torch.nn.Parameter:
                return _parameter(self, memo, recorder)
            _copy_memory(self, memo)
            return original(self, memo)
        return original(self, memo)

    torch.Tensor.__deepcopy__ = deepcopy
    FakeTensor.__copy__ = _shallow
    FakeTensor.__reduce_ex__ = _not_pickled(FakeTensor.__reduce_ex__)
    torch.load = _loading(torch.load)


def _loading(original: Any) -> Any:
    @functools.wraps(original)
    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        """The numbers of a file are known, those of fake tensors are not."""
        if state.current_recorder() is None:
            return original(f, map_location, *args, **kwargs)
        device = torch.device(map_location) if isinstance(map_location, str | torch.device) else None
        elsewhere = device is not None and device.type != "cpu"
        with _disable_current_modes():
            found = original(f, "cpu" if elsewhere else map_location, *args, **kwargs)
        return tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), found) if elsewhere else found

    return load


def _parameter(parameter: Any, memo: dict[Any, Any], recorder: Any) -> Any:
    """What ``Parameter.__deepcopy__`` makes: the numbers and whether they are trained, and no gradient, mark or memory that is shared."""
    if id(parameter) not in memo:
        with torch.no_grad():
            data = parameter.detach().clone(memory_format=torch.preserve_format)
        memo[id(parameter)] = torch.nn.Parameter(data, parameter.requires_grad)
        recorder.born(memo[id(parameter)])
    return memo[id(parameter)]


def _not_pickled(original: Any) -> Any:
    @functools.wraps(original)
    def reduce_ex(self: Any, protocol: Any) -> Any:
        if state.current_recorder() is None:
            return original(self, protocol)
        raise TracingError("trace-error", _PICKLED)

    return reduce_ex


def _shallow(self: Any) -> Any:
    if state.current_recorder() is None:
        return copy._reconstruct(self, None, *self.__reduce_ex__(4))  # type: ignore[attr-defined]  # noqa: SLF001 - what copy.copy itself does
    made = self.detach()
    vars(made).update(vars(self))
    return made.requires_grad_(self.requires_grad)


def _copy_memory(tensor: FakeTensor, memo: dict[Any, Any]) -> None:
    """Put a copy of a tensor's memory where PyTorch looks whether one was made; left to PyTorch, bytes are copied."""
    storage = tensor.untyped_storage()
    copies = memo.setdefault("torch", {})
    size = tensor.element_size()
    if storage._cdata in copies or tensor._has_symbolic_sizes_strides or storage.nbytes() % size:  # noqa: SLF001
        return
    with torch.no_grad():
        elements = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        elements.set_(storage, 0, (storage.nbytes() // size,), (1,))
        copies[storage._cdata] = elements.clone().untyped_storage()  # noqa: SLF001
