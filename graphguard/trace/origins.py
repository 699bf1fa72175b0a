"""What memory was computed from other memory: a rank's weights that a program cut out of the specification's while it was built."""

from __future__ import annotations

from collections.abc import Iterable, Set

from torch._ops import OpOverload

from graphguard.trace.births import read_by
from graphguard.trace.events import Event, Ref, refs_in
from graphguard.trace.kinds import kind_of
from graphguard.trace.twins import written_by
from graphguard.trace.views import count, row_major, whole

#: Operators that write without looking at what was there.
_OVERWRITES = frozenset(
    (
        "copy_", "zero_", "fill_", "uniform_", "normal_", "random_", "bernoulli_", "exponential_", "cauchy_", "log_normal_", "geometric_",
    )
)  # fmt: skip


def made_of(events: Iterable[Event], sources: Set[int]) -> dict[int, frozenset[int]]:
    """The storages whose elements these calls made of those of some sources, each with the sources; a source is its own.

    A source that was written after it had been read is none: what was made of it is not made of what it holds now.
    """
    made = {source: frozenset((source,)) for source in sources}
    extents: dict[int, int] = {}
    read: set[int] = set()
    late: set[int] = set()
    for event in events:
        if isinstance(event.op, str):
            continue
        origins: frozenset[int] = frozenset().union(*(made.get(storage, ()) for storage in read_by(event)))
        written = written_by(event)
        for ref in (*refs_in(event.outs), *written):
            extents[ref.storage] = max(extents.get(ref.storage, 0), _end(ref))
        late.update(read & sources & {ref.storage for ref in written})
        read.update(read_by(event))
        if origins:
            for ref in (*refs_in(event.outs), *written):
                made[ref.storage] = made.get(ref.storage, frozenset()) | origins
        elif _overwrites(event):
            for ref in written:
                if (
                    ref.storage not in sources
                    and row_major(ref.geometry) is not None
                    and _end(ref) >= extents[ref.storage]
                ):
                    made.pop(ref.storage, None)
    return {storage: found for storage, found in made.items() if not found & late}


def _overwrites(event: Event) -> bool:
    return isinstance(event.op, OpOverload) and kind_of(event.op).short_name in _OVERWRITES


def _end(ref: Ref) -> int:
    """Where a dense tensor ends in its storage, in elements."""
    offset, sizes, *_ = ref.geometry
    known = isinstance(offset, int) and all(isinstance(size, int) for size in sizes)
    return whole(offset) + count(ref.geometry) if known else 0
