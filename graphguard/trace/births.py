"""The memory that parameters had when they were made, for programs that copy or move it before they run.

A recording gives parameters their values when the program has been built.  By then a wrapper may have flattened, cut or copied the memory (ZeRO's partitions, FSDP's flat
parameters, an optimiser's copies in full precision): then the value must have been there before, and is written into the original memory before it is first read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from graphguard.trace.constants import Constants
from graphguard.trace.events import Event, refs_in
from graphguard.trace.kinds import kind_of
from graphguard.trace.twins import written_by


class Births:
    """The original memory of every parameter of one recording, and where in its events memory is first read."""

    def __init__(self, events: list[Event]) -> None:
        self._events = events
        self._first: dict[int, tuple[Any, FakeTensor]] = {}
        self._reads: dict[int, int] = {}
        self._looked_at = 0

    def note(self, parameter: Any, memory: FakeTensor) -> None:
        """``parameter`` was made, and shows ``memory``; it is kept, so that nothing else gets its identity."""
        self._first[id(parameter)] = parameter, memory

    def memory(self, parameter: Any) -> FakeTensor | None:
        """What the parameter showed when it was made; None for one that was made elsewhere."""
        found = self._first.get(id(parameter))
        return None if found is None else found[1]

    def first_read(self, storage: int) -> int | None:
        """The first call that takes the elements of a storage elsewhere; what only writes or views it does not."""
        for index in range(self._looked_at, len(self._events)):
            for number in _read(self._events[index]):
                self._reads.setdefault(number, index)
        self._looked_at = len(self._events)
        return self._reads.get(storage)

    @contextmanager
    def moved_before(self, index: int) -> Iterator[None]:
        """What is recorded inside happened before the call at ``index``, with the leaves that it reads."""
        events, start = self._events, len(self._events)
        yield
        moved = events[start:]
        del events[start:]
        wanted = {ref.storage for event in moved for ref in refs_in((event.args, event.kwargs))}
        leaves = [event for event in events[index:] if event.op == "leaf" and event.outs.storage in wanted]
        events[index:] = [event for event in events[index:] if not any(event is leaf for leaf in leaves)]
        events[index:index] = [*leaves, *moved]
        self._reads = {number: first for number, first in self._reads.items() if first < index}
        self._looked_at = index


def forget_copies(
    events: list[Event], index: int, storage: int, memories: dict[int, int], constants: Constants
) -> None:
    """What was computed from a storage since the call at ``index`` is not known; ``memories`` numbers storages by their identity."""
    changed = {storage}
    for event in events[index:]:
        if not changed.isdisjoint(_read(event)):
            changed.update(ref.storage for ref in (*refs_in(event.outs), *written_by(event)))
    constants.forget_storages(cdata for cdata, number in memories.items() if number in changed)


def _read(event: Event) -> set[int]:
    """Storages whose elements a call takes elsewhere."""
    if isinstance(event.op, str):
        return set()
    given = {ref.storage for ref in refs_in((event.args, event.kwargs))}
    if isinstance(event.op, torch._ops.OpOverload) and not kind_of(event.op).may_communicate:  # noqa: SLF001
        same = {ref.storage for ref in refs_in(event.outs)}  # views, and what is written in place
        return given - same - {ref.storage for ref in written_by(event)}
    return given
