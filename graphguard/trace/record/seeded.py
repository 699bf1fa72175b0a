"""Numbers that a program draws from a seed and reads: the order in which a sampler gives out samples, the seed of an epoch.

A draw stands for any numbers.  A program that reads what it drew needs the numbers themselves, and what PyTorch draws of a seed on a CPU is always the same: then
all programs of the check are recorded again with these numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphguard.trace.calls.constants import LARGEST
from graphguard.trace.calls.events import Event, Ref, refs_in

_WHOLE = ("bool", "int", "uint")


def is_read_as_drawn(ref: Ref) -> bool:
    """Whether a draw gives numbers that programs read: whole ones, or a single one."""
    sizes = [extent for extent in ref.shape if isinstance(extent, int)]
    largest = LARGEST if ref.dtype.startswith(_WHOLE) else 1
    return len(sizes) == len(ref.shape) and math.prod(sizes) <= largest


def follows_from_seeds(events: Sequence[Event], ref: Ref) -> bool:
    """Whether what a tensor shows was drawn from seeds, and follows from nothing else."""
    streams = _draws_behind(events, ref)
    return bool(streams) and all(map(seed_of, streams))


def _draws_behind(events: Sequence[Event], ref: Ref) -> frozenset[str]:
    """The streams that what a tensor shows was drawn from; none, where it rests on something else as well, or on draws that are not :func:`read <is_read_as_drawn>`."""
    wanted, streams = {ref.storage}, set()
    for event in reversed(events):
        outs = {one.storage for one in refs_in(event.outs)}
        written = outs | {one.storage for one in event.written}
        if wanted.isdisjoint(written) or event.op in ("output", "label"):
            continue
        if event.op in ("leaf", "copy"):
            return frozenset()
        if event.draw is not None:
            if not all(map(is_read_as_drawn, refs_in(event.outs))):
                return frozenset()
            streams.add(event.draw[0])
        wanted |= {one.storage for one in refs_in((event.args, event.kwargs))}
    return frozenset(streams)


def seed_of(stream: str) -> str:
    """The seed of a stream, empty where the program never seeded it."""
    return stream.partition(":")[2]
