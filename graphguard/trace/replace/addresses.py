"""Addresses of recorded memory: programs compare them to learn what is one tensor, and ask whether they are aligned.

A recorded tensor has no memory.  Its address is made from the number of its storage: the same for the same memory, apart and well aligned for different ones, and
one that no process on x86-64 or ARM can have mapped, so that code which reads there ends with a diagnostic instead of a graph that lacks what it did.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from graphguard.trace.calls import state

_FIRST = 1 << 62
_APART = 36
"""Storages are 64 GiB apart (in bits of the address)."""


def install() -> None:
    """Give recorded tensors and storages addresses; others keep theirs."""
    of_tensor, of_storage = torch.Tensor.data_ptr, torch.UntypedStorage.data_ptr

    @functools.wraps(of_tensor)
    def tensor_address(self: Any) -> int:
        if state.current_recorder() is None or not isinstance(self, FakeTensor):
            return of_tensor(self)
        start = _address(self.untyped_storage())
        return start and start + int(self.storage_offset()) * self.element_size()

    @functools.wraps(of_storage)
    def storage_address(self: Any) -> int:
        if state.current_recorder() is None or self.device.type != "meta":
            return of_storage(self)
        return _address(self)

    torch.Tensor.data_ptr = tensor_address
    torch.UntypedStorage.data_ptr = storage_address


def _address(storage: torch.UntypedStorage) -> int:
    """Where a storage begins; 0, as for PyTorch, where there is nothing in it."""
    recorder = state.current_recorder()
    assert recorder is not None
    return _FIRST + (recorder.storages.number(storage) << _APART) if storage.nbytes() else 0
