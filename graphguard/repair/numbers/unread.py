"""Parts of an input that an output should depend on, and that a rank never reads: found by changing them in numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from graphguard.confirm.fields.closed_numbers import ClosedNumbers
from graphguard.ir import Capture, Graph, Leaf, Placement, Promise, Var
from graphguard.ir.graph import COLLECTIVES
from graphguard.relations.numbers import Array, Number
from graphguard.repair.graph.neighbours import Neighbours
from graphguard.repair.graph.slices import JOINING, LAYOUT, Site
from graphguard.repair.numbers.point import Point

_CALLS = 4000  # that are evaluated for an answer: about 0.1 s
_MOVING = LAYOUT | JOINING | COLLECTIVES


@dataclass(frozen=True, slots=True)
class Unread:
    """Rows of a leaf that an output's part on a rank does not depend on, and should; ``site`` computes there with other rows of it."""

    leaf: str
    rank: int
    rows: range
    site: Site


def unread(point: Point, name: str, around: Neighbours) -> Unread | None:
    """The one leaf of which a rank reads too little for an output; None where there is none, or more than one, or the programs are large."""
    capture = point.capture
    promise = next((each for each in capture.promises if each.name == name), None)
    if promise is None or not isinstance(promise.wanted, dict) or capture.spec is None:
        return None
    blocks = [(leaf, rows) for leaf in capture.leaves for rows in _blocks(leaf, capture.world_size)]
    if capture.calls * len(blocks) > _CALLS:
        return None
    missing: list[tuple[str, int, range]] = []
    for leaf, rows in blocks:
        missing += [(leaf.name, rank, rows) for rank in _blind(point, promise, leaf, rows)]
        if missing and missing[0][0] != missing[-1][0]:
            return None
    if not missing:
        return None
    name, rank, rows = missing[0]
    site = _reader(point, name, rank, around)
    return None if site is None else Unread(name, rank, rows, site)


def _blocks(leaf: Leaf, count: int) -> Iterator[range]:
    """The rows of a leaf of real numbers, in as many parts as there are ranks."""
    rows = leaf.type.shape[0] if leaf.type.shape else 0
    if leaf.value is None and leaf.type.dtype.startswith(("float", "bfloat")) and isinstance(rows, int):
        size = max(1, -(-rows // count))
        yield from (range(start, min(start + size, rows)) for start in range(0, rows, size))


def _blind(point: Point, promise: Promise, leaf: Leaf, rows: range) -> Iterator[int]:
    """The ranks whose output does not move with some rows of a leaf, although their part of the specification's does."""
    capture, name = point.capture, promise.name
    value = point.leaves[leaf.name].array.copy()
    part = value[rows.start : rows.stop]
    part += 1 + np.arange(part.size).reshape(part.shape) / part.size
    closed = _closed(point)
    spec, ranks = point.elsewhere({leaf.name: Number(value)})
    if (
        _closed(point) > closed
    ):  # a function that stands for one without a rule depends on every element of its operands
        return
    assert capture.spec is not None
    assert isinstance(promise.wanted, dict)
    target = capture.spec.outputs.get(name)
    if target is None or target not in spec or target not in point.spec:
        return
    for rank, graph in enumerate(capture.ranks):
        own = graph.outputs.get(name)
        if own is None or own not in ranks[rank] or own not in point.ranks[rank]:
            continue
        before, after = (_part(capture, each[target].array, promise.wanted, rank) for each in (point.spec, spec))
        if before is None or after is None or np.array_equal(before, after, equal_nan=True):
            continue
        same = np.array_equal(point.ranks[rank][own].array, ranks[rank][own].array, equal_nan=True)
        if same and not _computed_with(graph, point.ranks[rank], ranks[rank], point.leaves[leaf.name].array):
            yield rank


def _closed(point: Point) -> int:
    algebra = point.run.algebra
    return algebra.closed if isinstance(algebra, ClosedNumbers) else 0


def _computed_with(graph: Graph, before: Mapping[Var, Number], after: Mapping[Var, Number], elements: Array) -> bool:
    """Whether a rank does more with what differs than to move it: an output may rest on numbers and not differ with them, as behind a maximum."""
    for node in graph.nodes:
        for out in node.outs:
            if out not in before or out not in after:
                continue
            old, new = before[out].array, after[out].array
            differs = (old != new) & ~((old != old) & (new != new))
            if differs.any() and (node.op not in _MOVING or not np.isin(old[differs], elements).all()):
                return True
    return False


def _part(capture: Capture, whole: Array, wanted: Mapping[str, Placement], rank: int) -> Array | None:
    """A rank's part of a tensor; None where it is a summand, or the parts are not of one size."""
    for axis, place in wanted.items():
        size = capture.mesh[axis]
        if place.kind == "partial" or (place.kind == "shard" and whole.shape[place.dim] % size):
            return None
        if place.kind == "shard":
            whole = np.split(whole, size, place.dim)[capture.coordinates(rank)[axis]]
    return whole


def _reader(point: Point, leaf: str, rank: int, around: Neighbours) -> Site | None:
    """The last site that computes on a rank with what is only moved of a leaf."""
    graph, values = point.capture.ranks[rank], point.ranks[rank]
    elements = point.leaves[leaf].array
    moved = {var for var, name in graph.inputs.items() if name == leaf}
    places = {site.position[rank]: site for site in around.sites.values() if rank in site.position}
    found: Site | None = None
    for index, node in enumerate(graph.nodes):
        if node.op in _MOVING:
            moved.update(out for out in node.outs if out in values and np.isin(values[out].array, elements).all())
        elif index in places and not moved.isdisjoint(node.operands()):
            found = places[index]
    return found
