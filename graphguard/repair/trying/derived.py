"""Edits that follow from what is known of the difference, tried where none of the usual ones mends a promise: there are few of them, and each says what is wrong in numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from graphguard.refine.proving.proof import Proof
from graphguard.repair.graph.alignment import Alignment
from graphguard.repair.graph.neighbours import Guess, Neighbours
from graphguard.repair.graph.slices import Site
from graphguard.repair.numbers.point import Point
from graphguard.repair.scales.shares import shares
from graphguard.repair.shards.bounds import bounds
from graphguard.repair.shards.fills import fills
from graphguard.repair.shards.gaps import gaps
from graphguard.repair.shards.regrouped import regrouped
from graphguard.repair.shards.rereading import reread
from graphguard.repair.shards.translated import translated
from graphguard.repair.shards.turned import turned
from graphguard.repair.shards.written import written


def derived(
    proof: Proof,
    alignment: Alignment,
    sites: Mapping[int, Site],
    broken: tuple[str, ...],
    point: Point | None = None,
) -> Iterator[Guess]:
    """Such guesses, those first that rest on most: places that are written, bounds of masks, places that are read, means of unequal parts, ids of rows, and numbers that tensors are filled up with.

    ``point`` has the numbers of both programs, where they could be worked out.
    """
    around = Neighbours.of(proof.capture, sites)
    yield from written(around, point) if point is not None else ()
    yield from bounds(around, point) if point is not None else ()
    yield from gaps(around)
    yield from turned(around)
    yield from ((rule, edit, site, 0) for rule, edit, site, _ in regrouped(around))
    yield from reread(proof.capture, alignment, sites, broken)
    for cost, guesses in enumerate((shares(around), translated(around), fills(around)), 1):
        yield from ((rule, edit, site, cost) for rule, edit, site, _ in guesses)
