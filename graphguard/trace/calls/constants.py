"""What is known about values while fake tensors stand in for them.

Small tensors that the program makes out of nothing but literals are carried along as real ones, storage by storage, so that ``.item()``,
``.tolist()`` and Python branches on them work.  A value is *pending* when it waits only for the other ranks' part in a
collective on such constants; everything computed from inputs, parameters or random draws is unknown.  What rests on memory that
nobody wrote is *unwritten*: it is carried along twice, from two contents of that memory, and known as soon as both come to the same.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Literal, Protocol

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils._python_dispatch import _disable_current_modes

from graphguard.ir.graph import Constant, TensorType
from graphguard.trace.source.errors import TracingError

LARGEST = 8192  # elements; beyond that nobody branches on a value, and a generator's state has 5056
LARGEST_TABLE = 1 << 20  # elements, while models are built: masks of 1024 positions, rotary tables of 8192
LARGEST_LITERAL = 1 << 22  # bytes of a constant that travel with the graph

_WITHOUT = frozenset((type(None), bool, int, float, str, torch.dtype, torch.device))

Knowledge = Literal["known", "unwritten", "pending", "unknown"]


@cache
def dtype_name(dtype: torch.dtype) -> str:
    """``float32`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


def constant_of(tensor: torch.Tensor) -> Constant:
    """A real tensor as plain data."""
    with _disable_current_modes():  # also outside of a dispatch, where the recorder itself is on
        kind = TensorType(tuple(tensor.shape), dtype_name(tensor.dtype))
        dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        size = (
            dense.numel() * dense.element_size()
        )  # no array: PyTorch would take it that one shows the memory from now on
        data = ctypes.string_at(dense.data_ptr(), size) if size else b""
    if sys.byteorder == "big":
        raise NotImplementedError("constants on big-endian machines")
    digest = hashlib.sha256(repr(kind).encode() + data).hexdigest()
    return Constant(kind, digest, data if len(data) <= LARGEST_LITERAL else None)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Every tensor in nested lists, tuples and dicts."""
    found: list[torch.Tensor] = []
    _gather(value, found)
    return found


def _gather(value: Any, found: list[torch.Tensor]) -> None:
    kind = type(value)
    if kind in _WITHOUT:
        return
    if isinstance(value, (list, tuple)):
        for item in value:
            if type(item) not in _WITHOUT:
                _gather(item, found)
    elif isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, dict):
        _gather(list(value.values()), found)


def storage_of(tensor: torch.Tensor) -> int:
    """Identity of the memory a tensor lies in, valid while something keeps it."""
    return tensor.untyped_storage()._cdata  # noqa: SLF001  # torch offers no public identity of a storage


def in_memory(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor as far as it has memory of its own: what ``expand`` repeats is there once."""
    strides = tensor.stride() if tensor.layout is torch.strided else ()
    for dim, (extent, stride) in enumerate(zip(tensor.shape, strides, strict=False)):
        if stride == 0 and isinstance(extent, int) and extent > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def whole_memory(real: torch.Tensor) -> torch.Tensor:
    """The tensor itself where it shows all of its memory in order, else that memory as one flat tensor."""
    size = real.untyped_storage().nbytes() // real.element_size() if real.numel() else 0
    if real.numel() == size and real.is_contiguous() and not real.is_conj() and not real.is_neg():
        return real
    if real.layout is not torch.strided:
        raise TracingError("trace-error", f"a {real.layout} tensor from outside the program cannot be traced")
    with unset_fake_temporarily(), torch.no_grad():
        return torch.empty(0, dtype=real.dtype, device="cpu").set_(real.untyped_storage(), 0, (size,), (1,))


class Followed(Protocol):
    """Memory that others than tensors show."""

    def note(self) -> None:
        """What is there now is what was recorded."""
        ...


class SharedMemory(Protocol):
    """What knowledge of values asks of the memory that others than tensors show: by the identity of a storage."""

    @property
    def followed(self) -> Mapping[int, Followed]:
        """The memories."""
        ...

    def lost(self, storage: int, *, pending: bool) -> None:
        """What a storage holds is not known from here on."""
        ...


class Constants:
    """Real storages behind the fake storages whose contents are known; tensors of more than ``largest`` elements are not carried along."""

    def __init__(self) -> None:
        self.largest = LARGEST_TABLE
        self._real: dict[int, torch.UntypedStorage] = {}
        self._other: dict[int, torch.UntypedStorage] = {}  # what else may be where memory was never written
        self._pending: set[int] = set()
        self.shown: SharedMemory | None = None

    def lies_in(self, tensor: FakeTensor, storage: torch.UntypedStorage) -> None:
        """The known elements of the storage of ``tensor`` are those in real memory, which others may show as well."""
        self._real[storage_of(tensor)] = storage
        self._other.pop(storage_of(tensor), None)
        self._pending.discard(storage_of(tensor))

    def is_shown(self, tensor: torch.Tensor) -> bool:
        """Whether arrays may show the memory of a tensor."""
        return self.shown is not None and storage_of(tensor) in self.shown.followed

    def wrote(self, tensors: Iterable[torch.Tensor]) -> None:
        """What these tensors hold now was recorded."""
        if self.shown is not None and self.shown.followed:
            for tensor in tensors:
                if self.is_shown(tensor):
                    self.shown.followed[storage_of(tensor)].note()

    def knowledge(self, tensors: Iterable[torch.Tensor]) -> Knowledge:
        """The least that is known about any of the tensors."""
        result: Knowledge = "known"
        for tensor in tensors:
            if not isinstance(tensor, FakeTensor):
                continue
            storage = tensor.untyped_storage()._cdata  # noqa: SLF001 - storage_of, asked for every operand
            if storage in self._pending:
                result = "pending"
            elif storage not in self._real:
                return "unknown"
            elif storage in self._other and result == "known":
                result = "unwritten"
        return result

    def set(self, tensor: FakeTensor, value: torch.Tensor) -> None:
        """From now on the storage of ``tensor`` is known to hold ``value`` where ``tensor`` lies."""
        if value.numel() > self.largest or not _is_plain(tensor):
            return
        storage = storage_of(tensor)
        with _disable_current_modes(), torch.no_grad():
            if storage not in self._real:
                self._real[storage] = torch.UntypedStorage(tensor.untyped_storage().nbytes())
            self._pending.discard(storage)
            for other in (False, True) if storage in self._other else (False,):
                held = self.real(tensor, other=other)
                in_memory(held).copy_(in_memory(value.detach()) if value.shape == held.shape else value.detach())
        self.settle((tensor,))
        self.wrote((tensor,))

    def leave_open(self, tensors: Iterable[torch.Tensor]) -> None:
        """What these tensors hold may be something else from here on: what that is, :meth:`real` gives as ``other``."""
        with _disable_current_modes():
            for storage in map(storage_of, tensors):
                if storage in self._real and storage not in self._other:
                    self._other[storage] = _bytes(self._real[storage]).clone().untyped_storage()

    def unwritten(self, tensor: FakeTensor) -> None:
        """Nobody has written the memory of ``tensor``."""
        with unset_fake_temporarily():
            zeros = torch.zeros(tuple(tensor.shape), dtype=tensor.dtype, device="cpu")
        self.set(tensor, zeros)
        if storage_of(tensor) in self._real:
            self.leave_open((tensor,))
            with _disable_current_modes():
                _bytes(self._other[storage_of(tensor)]).fill_(1)

    def differently(self, tensor: FakeTensor, value: torch.Tensor) -> None:
        """What ``tensor`` holds may be ``value`` instead of what was set."""
        if storage_of(tensor) in self._real:
            self.leave_open((tensor,))
            with _disable_current_modes(), torch.no_grad():
                self.real(tensor, other=True).copy_(value.detach())
            self.settle((tensor,))

    def settle(self, tensors: Iterable[torch.Tensor], *, anyway: bool = False) -> None:
        """Where both contents of what was left open are the same, they are known; ``anyway``: the first is taken."""
        for storage in map(storage_of, tensors):
            if storage in self._other and (anyway or _same(self._real[storage], self._other[storage])):
                del self._other[storage]

    def forget(self, tensors: Iterable[torch.Tensor], pending: bool = False) -> None:
        """The contents of these tensors' storages are not known any more."""
        for tensor in tensors:
            storage = storage_of(tensor)
            if self.is_shown(tensor):
                assert self.shown is not None
                self.shown.lost(storage, pending=pending)
            self._real.pop(storage, None)
            self._other.pop(storage, None)
            if pending:
                self._pending.add(storage)
            else:
                self._pending.discard(storage)

    def forget_storages(self, storages: Iterable[int]) -> None:
        """The contents of storages, by identity, are not known any more."""
        for storage in storages:
            if self.shown is not None and storage in self.shown.followed:
                self.shown.lost(storage, pending=False)
            self._real.pop(storage, None)
            self._other.pop(storage, None)
            self._pending.discard(storage)

    def real(self, tensor: torch.Tensor, *, other: bool = False) -> torch.Tensor:
        """The real tensor behind a fake one whose storage is known; it shares memory as the fake ones do."""
        if not isinstance(tensor, FakeTensor):
            return tensor
        held = storage_of(tensor)
        storage = self._other[held] if other and held in self._other else self._real[held]
        with _disable_current_modes(), torch.no_grad():
            view = torch.empty(0, dtype=tensor.dtype, device="cpu")
            view = view.set_(storage, tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
            view = view.conj() if tensor.is_conj() else view
            return torch._neg_view(view) if tensor.is_neg() else view

    def is_known(self, tensor: torch.Tensor) -> bool:
        """Whether :meth:`real` can answer."""
        if not isinstance(tensor, FakeTensor):
            return True
        return storage_of(tensor) in self._real and storage_of(tensor) not in self._other

    def substitute(self, value: Any, *, other: bool = False) -> Any:
        """Arguments with the real tensors in place of the fake ones, on the CPU."""
        if isinstance(value, torch.Tensor):
            return self.real(value, other=other)
        if isinstance(value, torch.device):
            return torch.device("cpu")
        if isinstance(value, list | tuple):
            return [self.substitute(item, other=other) for item in value]
        if isinstance(value, dict):
            return {key: self.substitute(item, other=other) for key, item in value.items()}
        return value


def _same(one: torch.UntypedStorage, other: torch.UntypedStorage) -> bool:
    with _disable_current_modes():
        return torch.equal(_bytes(one), _bytes(other))


def _bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage)


def _is_plain(tensor: torch.Tensor) -> bool:
    return all(type(size) is int for size in tensor.shape) and not tensor.is_sparse
