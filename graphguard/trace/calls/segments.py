"""Stretches of a recording that touch nothing but what goes in and what they make: these can be copied under other names.

A *segment* is closed: every storage in it is one of its inputs, which it only reads, or is made in it; its collectives are waited for at once; it draws nothing at random,
reads no element, assumes nothing.  A *copy* is the segment again on other inputs: one entry of the recording in the place of all of its calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphguard.trace.calls.collectives import calls_of
from graphguard.trace.calls.events import Event, Geometry, Ref, refs_in
from graphguard.trace.calls.kinds import Kind
from graphguard.trace.pure.harmless import identity
from graphguard.trace.pure.lookups import Doubt

_NAMESPACES = frozenset(("aten", "c10d", "gg"))
# All that decide together; what a rank is sent by another may be known to that one.
_COLLECTIVES = frozenset(("all_reduce", "all_gather", "reduce_scatter", "all_to_all"))


@dataclass(slots=True, eq=False)
class Segment:
    """``inputs`` are the storages from before; those that it makes are numbered from ``first`` on, ``made`` of them.

    ``kept`` are storages made here that something outside reads: results, and what the backward pass needs.  ``calls`` are the collectives in it, as ranks number them.
    """

    events: tuple[Event, ...]
    inputs: tuple[int, ...]
    first: int
    made: int
    calls: Counter[str]
    kept: set[int] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class Copy:
    """A segment again: ``storages`` are the inputs in place of the segment's, ``first`` is the first of its own; ``stacks``, ``forwards`` and ``modules`` say what else is renamed."""

    segment: Segment
    storages: Mapping[int, int]
    first: int
    stacks: Mapping[int, int]
    forwards: Mapping[int, int]
    modules: Mapping[str, str]

    @property
    def is_itself(self) -> bool:
        """Whether this is the segment as it was recorded."""
        return self.first == self.segment.first

    def storage(self, number: int) -> int:
        """The storage in the place of one of the segment's."""
        inside = number - self.segment.first
        return self.first + inside if 0 <= inside < self.segment.made else self.storages[number]

    def module(self, path: str) -> str:
        """The module in the place of one of the segment's."""
        return self.modules.get(path, path)

    def events(self) -> list[Event]:
        """All calls, one by one."""
        if self.is_itself:
            return list(self.segment.events)
        return [self._event(event) for event in self.segment.events]

    def _event(self, event: Event) -> Event:
        args, kwargs, outs = (self._renamed(value) for value in (event.args, event.kwargs, event.outs))
        stack, forward = self.stacks.get(event.stack, event.stack), self.forwards.get(event.forward, event.forward)
        place = (stack, event.sequence, self.module(event.module), event.phase)
        return Event(event.op, args, kwargs, outs, *place, event.draw, forward, event.waited)

    def _renamed(self, value: Any) -> Any:
        if isinstance(value, Ref):
            return Ref(self.storage(value.storage), value.geometry)
        if isinstance(value, tuple):
            return tuple(map(self._renamed, value))
        if isinstance(value, dict):
            return {key: self._renamed(item) for key, item in value.items()}
        return value


def segment_of(events: Sequence[Event], inputs: Iterable[int], first: int, end: int, calls: Counter[str]) -> Segment:
    """These events as a segment, which made the storages from ``first`` to ``end``; raises ``Doubt`` where they are not closed."""
    listed = tuple(dict.fromkeys(inputs))
    there = set(listed)
    geometries: set[Geometry] = set()
    for event in events:
        _check(event, there, geometries, first, end)
    if any(type(n) is not int for offset, sizes, strides, _ in geometries for n in (offset, *sizes, *strides)):
        raise Doubt("a size is for the data to decide")
    if not events:
        raise Doubt("nothing was called")
    return Segment(tuple(events), listed, first, end - first, calls)


def _check(event: Event, there: set[int], geometries: set[Geometry], first: int, end: int) -> None:
    """Raise ``Doubt`` unless a call reads what is ``there``, to which its results are added, and writes what was made since; ``geometries`` gets those of its tensors."""
    kind = event.kind
    if kind is None or event.op.namespace not in _NAMESPACES:
        raise Doubt(f"{event.op} is no operator of PyTorch's")
    if event.draw is not None or kind.needs_values or kind.changes_views or "batch_norm" in kind.name:
        raise Doubt(f"{event.op} is more than a function of tensors")
    read, made = refs_in((event.args, event.kwargs)), refs_in(event.outs)
    geometries.update([ref.geometry for ref in (*read, *made)])
    if any(ref.storage not in there for ref in read):
        raise Doubt(f"{event.op} reads what is neither an argument nor a parameter")
    if any(ref.storage not in there and not first <= ref.storage < end for ref in made):
        raise Doubt(f"{event.op} gives memory from elsewhere")
    there.update(ref.storage for ref in made)
    if any(not first <= ref.storage < end for ref in _written(event, kind)):
        raise Doubt(f"{event.op} writes to memory from before")


def _written(event: Event, kind: Kind) -> list[Ref]:
    if not kind.may_communicate:
        return event.written
    calls = calls_of(kind.name, event.args, event.outs)
    if not calls or not event.waited or any(call.kind not in _COLLECTIVES for call in calls):
        raise Doubt(f"{event.op} is not done when it returns")
    return [ref for call in calls for ref in call.writes]


def stretches(events: Sequence[Event]) -> Iterator[Event | Copy]:
    """A recording as calls and copies of segments, of which those that were recorded are the first."""
    segments = {}
    for event in events:
        if event.op == "copy":
            segment = event.args[0].segment
            segments[identity(segment.events[0])] = segment
    at = 0
    while at < len(events):
        event = events[at]
        segment = segments.get(identity(event))
        at += 1 if segment is None else len(segment.events)
        if segment is not None:
            yield Copy(segment, {number: number for number in segment.inputs}, segment.first, {}, {}, {})
        else:
            yield event.args[0] if event.op == "copy" else event


def matched(copy: Copy, events: Sequence[Event]) -> dict[int, int]:
    """The storages of a copy in the place of those that these events, the same calls recorded once more, made; raises ``Doubt`` where they are other calls."""
    found: dict[int, int] = {}
    if len(events) != len(copy.segment.events):
        raise Doubt("another number of calls")
    for wanted, event in zip(copy.events(), events, strict=True):
        same = (wanted.op, wanted.draw, wanted.waited) == (event.op, event.draw, event.waited)
        if not same or not _match(
            (wanted.args, wanted.kwargs, wanted.outs), (event.args, event.kwargs, event.outs), found
        ):
            raise Doubt(f"{event.op} in place of {wanted.op}")
    if len(set(found.values())) != len(found):
        raise Doubt("memory that is one is two")
    return found


def _match(wanted: Any, given: Any, found: dict[int, int]) -> bool:
    if type(wanted) is not type(given):
        return False
    if isinstance(wanted, Ref):
        return wanted.geometry == given.geometry and found.setdefault(given.storage, wanted.storage) == wanted.storage
    if isinstance(wanted, tuple):
        return len(wanted) == len(given) and all(
            _match(one, other, found) for one, other in zip(wanted, given, strict=True)
        )
    if isinstance(wanted, dict):
        return wanted.keys() == given.keys() and all(_match(value, given[key], found) for key, value in wanted.items())
    return bool(wanted == given) or wanted is given
