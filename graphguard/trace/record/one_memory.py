"""One memory that PyTorch and arrays both show: what either writes, the other reads.

``from_numpy``, ``as_tensor``, ``asarray``, ``frombuffer``, ``numpy``, ``__array__`` and DLPack copy nothing.  The known elements of such a tensor lie in the very memory that the arrays show, so arrays
read what PyTorch writes.  What arrays write PyTorch does not see: whenever an operator comes to such memory, it is compared with what it held last, and what it holds by now is
recorded as written into it before.  Memory is known by its address, so tensors of two views of one array are tensors of one memory.

Numbers that depend on the inputs are in no memory.  Where an operator writes some into what an array shows that the program may read again, that is one diagnostic.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from graphguard.trace.calls.constants import LARGEST_TABLE, storage_of
from graphguard.trace.calls.tape import Tape
from graphguard.trace.source.errors import TracingError
from graphguard.trace.source.held import is_read_later

STALE: Final = (
    "numbers that depend on the inputs are written into memory that an array of the program shows\n"
    "a recording has no such numbers for numpy to read: write to a clone of the tensor, or compute with tensors alone"
)
_WRITTEN: Final = (
    "an array shows the memory of a tensor whose numbers may be any (an input, a parameter, a float tensor from outside), and the program writes to it\n"
    "write to the tensor instead, or make the tensor inside of the program"
)
_ELSEWHERE: Final = (
    "tensors were made of two parts of one array, and neither part holds the other\n"
    "make one tensor of the whole array first, and the others as views of it"
)
_UNKNOWN: Final = object()  # whoever holds memory that came from elsewhere


@dataclass(slots=True)
class Shown:
    """Memory from ``start`` to ``end`` that arrays may show; ``whole`` is the tensor of all of it that the graph knows, ``seen`` what it held last.

    ``owners`` are arrays, or references to such, that lead there; ``digest`` stands in for ``seen`` where its elements are not followed.
    """

    start: int
    end: int
    whole: FakeTensor
    storage: torch.UntypedStorage | None = None
    owners: list[Any] = field(default_factory=list)
    seen: bytes | None = None
    digest: bytes = b""

    def held(self) -> bytes:
        """What is there now."""
        return ctypes.string_at(self.start, self.end - self.start)

    def note(self) -> None:
        """What is there now is what the graph has there."""
        self.seen = self.held()


class OneMemory:
    """The memory of a recording that arrays show."""

    def __init__(self, recorder: Tape) -> None:
        self._recorder = recorder
        self._all: list[Shown] = []
        self._giving = False
        self.followed: dict[int, Shown] = {}  # by the identity of the fake storage

    # -- tensors of arrays ---------------------------------------------------------------------------------------------
    def made(self, real: torch.Tensor, source: Any) -> torch.Tensor:
        """What stands for a real tensor that was made over the memory of an array or a buffer, and copied nothing of it."""
        shown = self._over(real)
        if shown is None:
            owner, start, size = _extent(source, real)
            if size % real.element_size() or (real.data_ptr() - start) % real.element_size():
                start, size = real.data_ptr(), _size(real)
            with _disable_current_modes():
                memory = torch.frombuffer((ctypes.c_ubyte * size).from_address(start), dtype=torch.uint8)
                whole = memory.view(real.dtype)
                if _size(real) == size and real.is_contiguous():
                    whole = whole.view(real.shape)
            fake = self._recorder.literal(whole, kept=real if owner is _UNKNOWN else None)
            shown = self._follow(Shown(start, start + size, fake, whole.untyped_storage(), [owner]))
        return self._view(shown, real)

    def met(self, real: torch.Tensor, fake: FakeTensor) -> None:
        """An operator came upon a tensor that was made before the recording, for which ``fake`` stands and whose elements are known."""
        storage = real.untyped_storage()
        if not _is_plain(real) or not _is_elsewhere(real) or storage.nbytes() % real.element_size():
            return
        if self._recorder.constants.is_known(fake) and not self._overlaps(storage.data_ptr(), _end(storage)):
            self._follow(Shown(storage.data_ptr(), _end(storage), self._flat(fake), storage, [_UNKNOWN]))

    def adopted(self, real: torch.Tensor, fake: FakeTensor) -> None:
        """``fake`` stands for a tensor that was made before the recording, and may hold anything."""
        if _is_plain(real, LARGEST_TABLE * 8) and real.is_contiguous() and _is_elsewhere(real):
            shown = Shown(real.data_ptr(), real.data_ptr() + _size(real), fake)
            shown.digest = _digest(shown)
            self._all.append(shown)

    def twin(self, real: torch.Tensor) -> FakeTensor | None:
        """The fake tensor that shows the same as a real one, where its memory has been met."""
        shown = self._over(real) if _is_plain(real) else None
        return None if shown is None else self._view(shown, real)

    # -- arrays of tensors ---------------------------------------------------------------------------------------------
    def array(self, tensor: FakeTensor, make: Callable[[torch.Tensor], Any]) -> Any:
        """The array, or what else ``make`` gives of a real tensor, that shows the memory of a tensor whose elements are known."""
        self.refresh((tensor,))
        constants = self._recorder.constants
        real = constants.real(tensor)
        with _disable_current_modes():
            found = make(real)
        shown = self.followed.get(storage_of(tensor))
        if shown is None:
            storage = real.untyped_storage()
            shown = self._follow(Shown(storage.data_ptr(), _end(storage), self._flat(tensor), storage))
        shown.owners.append(weakref.ref(found) if type(found).__name__ == "ndarray" else _UNKNOWN)
        return found

    # -- reads and writes ----------------------------------------------------------------------------------------------
    def refresh(self, tensors: Iterable[torch.Tensor]) -> None:
        """Record what arrays have written into the memory of these tensors since an operator came there last."""
        for tensor in tensors:
            shown = self.followed.get(storage_of(tensor)) if isinstance(tensor, FakeTensor) else None
            if shown is not None and shown.seen != shown.held():
                shown.note()
                self._gives_up_copies()
                with _disable_current_modes():
                    value = self._recorder.constants.real(shown.whole).clone()
                self._recorder.written(shown.whole, value)

    def lost(self, storage: int, *, pending: bool) -> None:
        """What a storage holds is not known from here on."""
        shown = self.followed[storage]
        if not self._giving and any(self._may_read(shown, place) for place in range(len(shown.owners))):
            if pending:
                self._recorder.ledger.need()
            raise TracingError("trace-error", STALE)
        self._leave(storage)

    @contextmanager
    def given(self) -> Iterator[None]:
        """What is written inside are the values that a check gives its tensors; arrays that show them must not be written to."""
        self._giving = True
        try:
            yield
        finally:
            self._giving = False

    def finish(self) -> None:
        """Raise ``TracingError`` where an array wrote into memory that may hold anything."""
        for shown in self._all:
            if shown.digest and shown.digest != _digest(shown):
                raise TracingError("trace-error", _WRITTEN)
            if shown.seen is not None and shown.seen != shown.held():
                self._gives_up_copies()

    # -- one memory ----------------------------------------------------------------------------------------------------
    def _follow(self, shown: Shown) -> Shown:
        if self._overlaps(shown.start, shown.end):
            raise TracingError("trace-error", _ELSEWHERE)
        assert shown.storage is not None
        shown.note()
        self._recorder.constants.lies_in(shown.whole, shown.storage)
        self._all.append(shown)
        self.followed[storage_of(shown.whole)] = shown
        return shown

    def _overlaps(self, start: int, end: int) -> bool:
        return any(start < other.end and other.start < end for other in self._all)

    def _leave(self, storage: int) -> None:
        shown = self.followed.pop(storage)
        shown.seen, shown.digest = None, _digest(shown)

    def _over(self, real: torch.Tensor) -> Shown | None:
        start = real.data_ptr()
        end = start + _size(real)
        return next((shown for shown in self._all if shown.start <= start and end <= shown.end), None)

    def _view(self, shown: Shown, real: torch.Tensor) -> FakeTensor:
        offset, rest = divmod(real.data_ptr() - shown.start, real.element_size())
        if rest:
            raise TracingError("trace-error", _ELSEWHERE)
        offset += int(shown.whole.storage_offset()) if shown.storage is None else 0
        return self._set(shown.whole, real.dtype, offset, tuple(real.shape), real.stride())

    def _flat(self, fake: FakeTensor) -> FakeTensor:
        """All of the memory of a tensor, itself where it shows that."""
        size = fake.untyped_storage().nbytes() // fake.element_size()
        if fake.numel() == size and fake.is_contiguous():
            return self._set(fake, fake.dtype, 0, tuple(fake.shape), fake.stride())
        return self._set(fake, fake.dtype, 0, (size,), (1,))

    def _set(
        self, like: FakeTensor, dtype: torch.dtype, offset: int, shape: tuple[int, ...], stride: tuple[int, ...]
    ) -> FakeTensor:
        recorder = self._recorder
        with recorder.pause(), recorder.fake_mode, torch.no_grad():
            made: Any = torch.empty(0, dtype=dtype, device=like.device)
            return made.set_(like.untyped_storage(), offset, shape, stride)

    def _may_read(self, shown: Shown, place: int) -> bool:
        """Whether an array may be read again, from the lines on which the program stands."""
        owners, frame = shown.owners, sys._getframe(1)  # noqa: SLF001 - who calls is what counts
        if isinstance(owners[place], weakref.ref):
            return owners[place]() is not None and is_read_later(owners[place], 0, frame)
        return owners[place] is _UNKNOWN or is_read_later(lambda: owners[place], 1, frame)

    def _gives_up_copies(self) -> None:
        repeats = self._recorder.repeats
        if repeats is not None:
            repeats.shows("an array writes into the memory of tensors")


def _is_plain(real: torch.Tensor, largest: int = LARGEST_TABLE) -> bool:
    """Whether a real tensor lies in memory of this process alone that has an address, and is small enough to be compared."""
    plain = real.device.type == "cpu" and real.layout is torch.strided and not isinstance(real, FakeTensor)
    storage = real.untyped_storage() if plain else None
    return storage is not None and 0 < storage.nbytes() <= largest * 8 and not storage.is_shared()


def _is_elsewhere(real: torch.Tensor) -> bool:
    """Whether there is, or was, an array of the memory of a real tensor: PyTorch resizes no such memory."""
    return not real.untyped_storage().resizable()


def _end(storage: torch.UntypedStorage) -> int:
    return storage.data_ptr() + storage.nbytes()


def _size(real: torch.Tensor) -> int:
    """From the first byte that a tensor shows to the last."""
    if not real.numel():
        return 0
    last = sum((size - 1) * stride for size, stride in zip(real.shape, real.stride(), strict=True))
    return (last + 1) * real.element_size()


def _extent(source: Any, real: torch.Tensor) -> tuple[Any, int, int]:
    """The array or buffer whose memory another one shows, where that begins, and how many bytes it has."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return _UNKNOWN, real.data_ptr(), _size(real)
    if not isinstance(source, numpy.ndarray):
        try:
            return _UNKNOWN, *_bounds(numpy.frombuffer(source, numpy.uint8))
        except (TypeError, ValueError, BufferError):  # no buffer: as much as the tensor shows
            return _UNKNOWN, real.data_ptr(), _size(real)
    while isinstance(source.base, numpy.ndarray):
        source = source.base
    if source.base is not None:
        return (_UNKNOWN, *_extent(source.base, real)[1:])
    return (source, *_bounds(source))


def _bounds(array: Any) -> tuple[int, int]:
    """Where the memory that an array shows begins, and how many bytes it has."""
    reaches = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    before = sum(reach for reach in reaches if reach < 0)
    after = sum(reach for reach in reaches if reach > 0)
    return array.__array_interface__["data"][0] + before, after - before + array.itemsize


def _digest(shown: Shown) -> bytes:
    return hashlib.blake2b(shown.held()).digest()
