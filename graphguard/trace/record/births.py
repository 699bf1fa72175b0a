"""The memory that parameters had when they were made, for programs that copy or move it before they run.

A recording gives parameters their values when the program has been built.  By then a wrapper may have flattened, cut or copied the memory (ZeRO's partitions, FSDP's flat
parameters, an optimiser's copies in full precision): then the value must have been there before, and is written into the original memory before it is first read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from graphguard.trace.calls.constants import Constants
from graphguard.trace.calls.events import Event, refs_in
from graphguard.trace.calls.kernels import Kernels, Window


class Births:
    """The original memory of every parameter of one recording, and where in its events memory is first read."""

    def __init__(self, events: list[Event], kernels: Kernels) -> None:
        self._events = events
        self._kernels = kernels
        self._windows: dict[int, tuple[Any, Window]] = {}
        self._shapes: dict[int, tuple[int, ...]] = {}
        self._shown: dict[int, FakeTensor] = {}
        self._reads: dict[int, int] = {}
        self._looked_at = 0

    def note(self, parameter: FakeTensor) -> None:
        """``parameter`` was made, and shows its memory; it is kept, so that nothing else gets its identity."""
        self._windows[id(parameter)] = parameter, self._kernels.window(parameter)
        self._shapes[id(parameter)] = tuple(parameter.shape)

    def storage(self, parameter: Any) -> torch.UntypedStorage | None:
        """The memory that the parameter was made with; None for one that was made elsewhere."""
        found = self._windows.get(id(parameter))
        return None if found is None else found[1].storage

    def shape(self, parameter: Any) -> tuple[int, ...] | None:
        """The shape that the parameter was made with; None for one that was made elsewhere."""
        return self._shapes.get(id(parameter))

    def shown(self, parameter: Any) -> FakeTensor:
        """What the parameter showed when it was made, the same tensor each time; inside the fake mode."""
        shown = self._shown.get(id(parameter))
        if shown is None:
            shown = self._shown[id(parameter)] = self._kernels.shown(self._windows[id(parameter)][1])
        return shown

    def first_read(self, storage: int) -> int | None:
        """The first call that takes the elements of a storage elsewhere; what only writes or views it does not."""
        for index in range(self._looked_at, len(self._events)):
            for number in self._events[index].read:
                self._reads.setdefault(number, index)
        self._looked_at = len(self._events)
        return self._reads.get(storage)

    def cut(self, start: int) -> list[Event]:
        """The calls since ``start``, taken out again, to be put where they happened."""
        cut = self._events[start:]
        del self._events[start:]
        self._looked_at = min(self._looked_at, start)
        return cut

    def insert(self, groups: Mapping[int, list[Event]]) -> None:
        """Calls before those at these indices, and before all of them the leaves that they read."""
        first = min(groups)
        moved = [event for group in groups.values() for event in group]
        wanted = {ref.storage for event in moved for ref in refs_in((event.args, event.kwargs))}
        leaves = [event for event in (*self._events[first:], *moved) if _is_leaf(event, wanted)]
        put = list(leaves)
        for index in range(first, len(self._events)):
            put += [event for event in (*groups.get(index, ()), self._events[index]) if not _is_leaf(event, wanted)]
        self._events[first:] = put
        self._reads = {number: read for number, read in self._reads.items() if read < first}
        self._looked_at = first


def _is_leaf(event: Event, storages: Set[int]) -> bool:
    return event.op == "leaf" and event.outs.storage in storages


def forget_copies(events: Iterable[Event], storages: set[int], memories: dict[int, int], constants: Constants) -> None:
    """What these calls computed from some storages is not known; ``memories`` numbers storages by their identity."""
    changed = set(storages)
    for event in events:
        if not changed.isdisjoint(event.read):
            changed.update(ref.storage for ref in (*refs_in(event.outs), *event.written))
    constants.forget_storages(cdata for cdata, number in memories.items() if number in changed)
