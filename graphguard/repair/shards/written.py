"""Rows that are written into a tensor at other places than where the specification has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from graphguard.ir import Capture, DType, Graph, Node, TensorType, Var
from graphguard.ops import aten
from graphguard.relations.numbers import Array
from graphguard.repair.graph.editing import fresh
from graphguard.repair.graph.edits import OtherCalls
from graphguard.repair.graph.meanings import Offset, Writing
from graphguard.repair.graph.neighbours import Guess, Neighbours
from graphguard.repair.graph.slices import Site
from graphguard.repair.numbers.point import Point
from graphguard.repair.shards.rereading import places_text, runs_of

_INDEXED: Mapping[str, tuple[int, int, int]] = {
    aten.index_put.default: (0, 1, 2),
    aten.index_copy.default: (1, 2, 3),
    aten.index_add.default: (1, 2, 3),
}
"""Where an operator has its dim (0: the first dim is meant), its index and what it writes."""
_SLICED = aten.slice_scatter.default
_SELECTED = aten.select_scatter.default
_ROWS = 1 << 10  # of a tensor in which rows are looked for


@dataclass(frozen=True, slots=True)
class Write:
    """What a rank writes at a site, along a dim, and the places where it does."""

    site: Site
    rank: int
    dim: int
    rows: Array
    now: tuple[int, ...]


def written(around: Neighbours, point: Point) -> Iterator[Guess]:
    """A guess for each tensor of the specification that has all the rows that the ranks write, at other places."""
    writes = [write for site in around.sites.values() for write in _writes(site, around.capture, point)]
    spec = around.capture.spec
    outputs = set(spec.outputs.values()) if spec is not None else set()
    for var in sorted(point.spec, key=lambda var: (var not in outputs, -var.id)) if writes else ():
        target = point.spec[var].array
        needed = [
            (write, places_of(write, part)) for write in writes for part in own_parts(write, target, around.capture)
        ]
        known = [(write, places) for write, places in needed if places is not None]
        changed = [write for write, places in known if places != write.now]
        ranks = {write.rank for write, _ in known}
        if changed and len(ranks) == around.capture.world_size:
            edit = _edit(around.capture, [(write, places) for write, places in known if places != write.now])
            yield "wrong-shard", edit, changed[0].site, 0


def _writes(site: Site, capture: Capture, point: Point) -> Iterator[Write]:
    """What the ranks write at a site; nothing where it is not known, or stands in several dims."""
    for rank, index in site.position.items():
        node, values = capture.ranks[rank].nodes[index], point.ranks[rank]
        if node.op == _SLICED:
            source, dim, start = (*node.args[1:], 0, 0)[:3]
            if isinstance(source, Var) and source in values and isinstance(dim, int) and isinstance(start, int):
                rows = np.moveaxis(values[source].array, dim, 0)
                step = node.args[5] if len(node.args) > 5 else 1
                if step == 1 and rows.dtype.kind == "f":
                    yield Write(site, rank, dim, rows, tuple(range(start, start + len(rows))))
        elif node.op == _SELECTED:
            source, dim, place = node.args[1:4]
            if isinstance(source, Var) and source in values and isinstance(dim, int) and isinstance(place, int):
                row = values[source].array[None]
                if row.dtype.kind == "f" and min(place, dim) >= 0:
                    yield Write(site, rank, dim, row, (place,))
        elif node.op in _INDEXED:
            yield from _indexed(site, rank, node, values)


def _indexed(site: Site, rank: int, node: Node, values: Mapping[Var, object]) -> Iterator[Write]:
    first, second, third = _INDEXED[node.op]
    dim = node.args[first] if first else 0
    index, source = node.args[second], node.args[third]
    if isinstance(index, tuple):
        index = index[0] if len(index) == 1 else None
    adds = not first and len(node.args) > third + 1 and node.args[third + 1] is True
    if not isinstance(index, Var) or not isinstance(source, Var) or not isinstance(dim, int) or adds:
        return
    if index not in values or source not in values:
        return
    places, given = (getattr(values[var], "array", None) for var in (index, source))
    assert places is not None
    assert given is not None
    rows = np.moveaxis(given, dim, 0) if given.ndim else given
    if (
        places.ndim == 1
        and places.dtype.kind == "i"
        and rows.ndim
        and rows.dtype.kind == "f"
        and len(rows) == len(places)
    ):
        yield Write(site, rank, dim, rows, tuple(int(place) for place in places))


def own_parts(write: Write, target: Array, capture: Capture) -> Iterator[Array]:
    """A tensor's part with rows of the shape that a rank writes, along the dim of the write: the rank's own where it has a part of the other dims."""
    if target.ndim != write.rows.ndim or target.dtype.kind != "f" or target.ndim <= write.dim:
        return
    rows = np.moveaxis(target, write.dim, 0)
    for dim, (extent, whole) in enumerate(zip(write.rows.shape[1:], rows.shape[1:], strict=True), 1):
        axis = next((axis for axis, size in capture.mesh.items() if size > 1 and extent * size == whole), None)
        if axis is not None:
            rows = np.split(rows, capture.mesh[axis], dim)[capture.coordinates(write.rank)[axis]]
    if rows.shape[1:] == write.rows.shape[1:] and len(rows) <= _ROWS and rows.size and write.rows.size:
        yield rows


def places_of(write: Write, rows: Array) -> tuple[int, ...] | None:
    """The places among rows where those of a write are, each another one; None where they are not all there."""
    places: list[int] = []
    for row in write.rows:
        alike = np.isclose(rows, row, rtol=1e-9, atol=1e-12).reshape(len(rows), -1).all(1)
        free = [int(place) for place in np.flatnonzero(alike) if int(place) not in places]
        if not free:
            return None
        places.append(free[0])
    return tuple(places)


def _edit(capture: Capture, changes: Sequence[tuple[Write, tuple[int, ...]]]) -> OtherCalls:
    calls: dict[int, dict[int, tuple[Node, ...]]] = {}
    types: dict[int, dict[Var, TensorType]] = {}
    for write, places in changes:
        graph, index = capture.ranks[write.rank], write.site.position[write.rank]
        own = types.setdefault(write.rank, {})
        calls.setdefault(write.rank, {})[index] = _at_places(graph, graph.nodes[index], places, own)
    write, places = changes[0]
    where = f" of dim {write.dim}" if write.dim else ""
    rows = ("row " if len(places) == 1 else "rows ") if not write.dim else ""
    alike = {(write.now, places) for write, places in changes}
    everyone = len(alike) == 1 and len({write.rank for write, _ in changes}) == capture.world_size
    who = "every rank" if everyone else f"rank {write.rank}"
    told = f"'{{name}}' is written to the wrong place: {who} writes {rows}{places_text(write.now)}{where}, needs {places_text(places)}"
    return OtherCalls(calls, types, told, Writing(_offset(capture, changes), _further(capture, changes)))


def _further(capture: Capture, changes: Sequence[tuple[Write, tuple[int, ...]]]) -> tuple[int, int] | None:
    """The dim and the number of places by which every rank writes too early, where these are the same for all that they write."""
    found = {
        (write.dim, needed - now) for write, places in changes for now, needed in zip(write.now, places, strict=True)
    }
    ranks = {write.rank for write, _ in changes}
    return found.pop() if len(found) == 1 and len(ranks) == capture.world_size else None


def _at_places(graph: Graph, node: Node, places: tuple[int, ...], types: dict[Var, TensorType]) -> tuple[Node, ...]:
    """The calls that write at other places."""
    runs = runs_of(places)
    if node.op == _SLICED and len(runs) == 1 and runs[0].step == 1:
        return (replace(node, args=(*node.args[:3], places[0], places[-1] + 1)),)
    if node.op == _SELECTED:
        return (replace(node, args=(*node.args[:3], places[0])),)
    pieces: list[Node] = []
    kind = TensorType((len(places),), "int64")
    for run in runs:
        piece = Var(fresh(graph) + len(types))
        types[piece] = replace(kind, shape=(len(run),))
        args = (run.start, run.stop, run.step)
        made = replace(node, op=aten.arange.start_step, args=args, kwargs={"dtype": DType("int64")}, outs=(piece,))
        pieces.append(made)
    index = pieces[0].outs[0]
    if len(pieces) > 1:
        index = Var(fresh(graph) + len(types))
        types[index] = kind
        parts = tuple(piece.outs[0] for piece in pieces)
        pieces.append(replace(node, op=aten.cat.default, args=(parts, 0), kwargs={}, outs=(index,)))
    if node.op == _SLICED:
        dim = node.args[2] if len(node.args) > 2 else 0
        return (*pieces, replace(node, op=aten.index_copy.default, args=(node.args[0], dim, index, node.args[1])))
    place = _INDEXED[node.op][1]
    given = (index,) if isinstance(node.args[place], tuple) else index
    return (*pieces, replace(node, args=(*node.args[:place], given, *node.args[place + 1 :])))


def _offset(capture: Capture, changes: Sequence[tuple[Write, tuple[int, ...]]]) -> Offset | None:
    """The start that places lack, where it is a rank's place along an axis times a length on every rank."""
    found = {
        (write.rank, needed - now) for write, places in changes for now, needed in zip(write.now, places, strict=True)
    }
    for axis, size in capture.mesh.items():
        steps = {capture.coordinates(rank)[axis]: start for rank, start in found}
        length = steps.get(1, 0)
        if size > 1 and length > 0 and all(start == capture.coordinates(rank)[axis] * length for rank, start in found):
            return Offset(axis, length, "written")
    return None
