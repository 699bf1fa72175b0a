"""What memory was computed from other memory: a rank's weights that a program cut out of the specification's while it was built."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from graphguard.trace.calls.constants import constant_of, dtype_name
from graphguard.trace.calls.events import Event, Ref, refs_in
from graphguard.trace.graph.views import count, row_major, whole

if TYPE_CHECKING:
    from graphguard.trace.record.recorder import Recorder

#: Operators that write without looking at what was there.
_OVERWRITES = frozenset(
    (
        "copy_", "zero_", "fill_", "uniform_", "normal_", "random_", "bernoulli_", "exponential_", "cauchy_", "log_normal_", "geometric_",
    )
)  # fmt: skip


#: Operators whose result is their operand, where it has its type.
_COPIES = frozenset(("clone", "copy_", "_to_copy", "lift_fresh_copy"))


@dataclass(frozen=True, slots=True)
class Source:
    """A storage that holds what a tensor holds: the tensor's own, or one of which that is a copy.

    It does so before the call at ``until``: what is written into it from then on is its own affair.  ``since``: a literal, which holds it as soon as it is there.
    """

    tensor: int
    until: int
    since: int | None = None


def sources_of(events: Sequence[Event], own: Mapping[int, int], literals: Mapping[str, int]) -> dict[int, Source]:
    """The storages that hold what some tensors hold: their own ones, those that were copied into them last, and literals of their digest.

    One that holds what several tensors hold, each of which may be anything, is none.
    """
    found = {storage: Source(tensor, len(events)) for storage, tensor in own.items()}
    copied = _copies(events)
    shared: set[int] = set()
    for storage, tensor in own.items():
        at = storage
        while at in copied and copied[at][0] not in own:
            at, until = copied[at]
            if found.setdefault(at, Source(tensor, until)).tensor != tensor:
                shared.add(at)
    for index, event in enumerate(events):
        tensor_of_bits = literals.get(event.args[0].digest) if event.op == "constant" else None
        if tensor_of_bits is not None:
            found[event.outs.storage] = Source(tensor_of_bits, index, since=index)
    return {storage: source for storage, source in found.items() if storage not in shared}


def _copies(events: Sequence[Event]) -> dict[int, tuple[int, int]]:
    """The storages that were written last by a copy of all of another one: that one, and the number of the call."""
    copies: dict[int, tuple[int, int]] = {}
    extents: dict[int, int] = {}
    for index, event in enumerate(events):
        if _only_shows(event):
            continue
        written, read = event.written, event.read
        into = [*written, *refs_in(event.outs)]
        for ref in into:
            extents[ref.storage] = max(extents.get(ref.storage, 0), _end(ref))
        for ref in into if read else written:
            copies.pop(ref.storage, None)
        given = [ref for ref in refs_in(event.args) if ref.storage in read]
        if (
            len(given) == 1
            and into
            and _is_copy(event, given[0], into[0])
            and _all_of(given[0], extents)
            and _all_of(into[0], extents)
        ):
            copies[into[0].storage] = given[0].storage, index
    return copies


def made_of(events: Iterable[Event], sources: Mapping[int, Source]) -> dict[int, frozenset[int]]:
    """The storages whose elements these calls made of those of some sources, each with their tensors; a source is its own.

    A source that was written between the time when it was read and that until which it counts is none: what was made of it is not made of what it held then.
    """
    made = {storage: frozenset((source.tensor,)) for storage, source in sources.items()}
    extents: dict[int, int] = {}
    read: set[int] = set()
    late: set[int] = set()
    for index, event in enumerate(events):
        if _only_shows(event):
            continue
        origins: frozenset[int] = frozenset().union(*(made.get(storage, ()) for storage in event.read))
        written = event.written
        for ref in (*refs_in(event.outs), *written):
            extents[ref.storage] = max(extents.get(ref.storage, 0), _end(ref))
        for ref in written:
            source = sources.get(ref.storage)
            if source is not None and source.since is None and index < source.until and ref.storage in read:
                late.add(source.tensor)
        read.update(event.read)
        if origins:
            for ref in (*refs_in(event.outs), *written):
                made[ref.storage] = made.get(ref.storage, frozenset()) | origins
        elif _overwrites(event):
            for ref in written:
                held = ref.storage in sources and index < sources[ref.storage].until
                if not held and row_major(ref.geometry) is not None and _end(ref) >= extents[ref.storage]:
                    made.pop(ref.storage, None)
    return {storage: found for storage, found in made.items() if not found & late}


def _only_shows(event: Event) -> bool:
    """Whether a call neither reads nor writes elements, such as the one that has a tensor show other memory."""
    return isinstance(event.op, str) or (event.kind is not None and event.kind.short_name == "set_")


def _all_of(ref: Ref, extents: Mapping[int, int]) -> bool:
    return _end(ref) >= extents.get(ref.storage, 0)


def _is_copy(event: Event, given: Ref, target: Ref) -> bool:
    copies = event.kind is not None and event.kind.short_name in _COPIES
    return copies and target.geometry == given.geometry and row_major(given.geometry) is not None


def _overwrites(event: Event) -> bool:
    return event.kind is not None and event.kind.short_name in _OVERWRITES


def _end(ref: Ref) -> int:
    """Where a dense tensor ends in its storage, in elements."""
    offset, sizes, *_ = ref.geometry
    known = isinstance(offset, int) and all(isinstance(size, int) for size in sizes)
    return whole(offset) + count(ref.geometry) if known else 0


class Origins:
    """Of which of some tensors the memory that a recording has met so far was computed, by their places among them."""

    def __init__(self, recorder: Recorder, tensors: Sequence[torch.Tensor]) -> None:
        self._recorder = recorder
        self._tensors = tensors
        numbers = [recorder.number_of(tensor) for tensor in tensors]
        own = {number: place for place, number in enumerate(numbers) if number is not None}
        self._sources = sources_of(recorder.events, own, _digests(tensors, recorder.events))
        self._made = made_of(recorder.events, self._sources)

    def of(self, tensor: torch.Tensor) -> frozenset[int]:
        """Those that a tensor was made of."""
        number = self._recorder.number_of(tensor)
        return frozenset() if number is None else self._made.get(number, frozenset())

    def bind(self, values: Mapping[int, Callable[[], torch.Tensor]]) -> None:
        """Give some of the tensors their values, before anything was made of them."""
        writes = []
        for storage, source in self._sources.items():
            if source.tensor in values:
                memory = self._recorder.showing(storage, self._tensors[source.tensor])
                after = None if source.since is None else source.since + 1
                writes.append((memory, values[source.tensor], after))
        self._recorder.write_before_reads(writes)


def _digests(tensors: Sequence[torch.Tensor], events: Iterable[Event]) -> dict[str, int]:
    """The tensors from before the recording by their bits, where a literal may have them: those of which no two are alike, and no two elements of all."""
    literals = {(event.outs.dtype, _end(event.outs)) for event in events if event.op == "constant"}
    found: dict[str, list[int]] = {}
    with _disable_current_modes():
        for place, tensor in enumerate(tensors):
            real = not isinstance(tensor, FakeTensor) and type(tensor) in (torch.Tensor, torch.nn.Parameter)
            if not real or tensor.numel() < 2 or (dtype_name(tensor.dtype), tensor.numel()) not in literals:
                continue
            if bool((tensor != tensor.flatten()[0]).any()):
                found.setdefault(constant_of(tensor.detach()).digest, []).append(place)
    return {digest: places[0] for digest, places in found.items() if len(places) == 1}
