"""Memory that a program gives back while tensors still show it, as sharded parameters do after use: ``tensor.untyped_storage().resize_(0)``.

PyTorch raises an error where such memory is read.  Given out again (``resize_(n)``), it holds whatever was there, until something is written.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

import torch

from graphguard.trace.calls import state
from graphguard.trace.calls.collectives import calls_of
from graphguard.trace.calls.constants import tensors_in
from graphguard.trace.calls.kinds import Kind
from graphguard.trace.replace.arguments import with_group
from graphguard.trace.source.errors import TracingError

# What looks at a tensor's form alone, and gives it other memory.
_FORM: Final = ("set_", "resize_", "record_stream", "is_same_size", "_assert_tensor_metadata")
_GONE: Final = "The tensor has a non-zero number of elements, but its data is not allocated yet."
_LOST: Final = "memory that was freed and allocated again is read before anything is written there"


class Freed:
    """What is known of memory that was given back: by the number of its storage, whether it was given out again."""

    def __init__(self) -> None:
        self.memory: dict[int, bool] = {}

    def resized(self, number: int, before: int, after: int) -> None:
        """A storage has ``after`` bytes now, and had ``before``."""
        if after == 0 and before:
            self.memory[number] = False
        elif after and number in self.memory:
            self.memory[number] = True

    @contextmanager
    def earlier(self) -> Iterator[None]:
        """What is called inside stands before calls that were made already, when the memory was there."""
        memory, self.memory = self.memory, {}
        try:
            yield
        finally:
            self.memory = memory

    def used(self, kind: Kind, args: Any, kwargs: Any, number: Callable[[torch.Tensor], int | None]) -> None:
        """A call is made; raises what PyTorch does where it needs memory that is gone, and ``TracingError`` where it reads what was lost with it."""
        if _is_of_form(kind):
            return
        written = {at for tensor in _written(kind, args, kwargs) if (at := number(tensor)) is not None}
        for tensor in tensors_in((args, kwargs)):
            at = number(tensor)
            given_out = self.memory.get(at) if at is not None and tensor.numel() else None
            if given_out is False:
                raise RuntimeError(_GONE)
            if given_out and at not in written:
                raise TracingError("trace-error", _LOST)
        for at in written:
            self.memory.pop(at, None)


def install() -> None:
    """Have recorders told of storages that are resized."""
    original = torch.UntypedStorage.resize_

    @functools.wraps(original)
    def resize_(self: Any, size: Any) -> Any:
        recorder = state.current_recorder()
        if recorder is None or self.device.type != "meta":
            return original(self, size)
        before = self.nbytes()
        out = original(self, size)
        recorder.resized(self, before)
        return out

    torch.UntypedStorage.resize_ = resize_


@cache
def _is_of_form(kind: Kind) -> bool:
    views = any(
        one.alias_info is not None and not one.alias_info.is_write
        for one in kind.operator._schema.returns  # noqa: SLF001
    )
    name = kind.short_name
    return views or name in _FORM or name.startswith("new_") or name.endswith("_like")


def _written(kind: Kind, args: Any, kwargs: Any) -> Iterator[torch.Tensor]:
    for call in (calls_of(kind.name, tuple(map(with_group, args)), None) or ()) if kind.is_c10d else ():
        yield from tensors_in(call.writes)
    for at, name in kind.written:
        yield from tensors_in((args[at] if at < len(args) else kwargs.get(name),))
