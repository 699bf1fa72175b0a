"""Rows between the parts of neighbouring ranks that no rank reads, as where labels are shifted within each rank's part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from graphguard.ir import Capture, Graph, Node, Var
from graphguard.ops import aten
from graphguard.repair.graph.edits import OtherCalls
from graphguard.repair.graph.neighbours import Guess, Neighbours
from graphguard.repair.graph.retyping import refitted
from graphguard.repair.graph.slices import Site
from graphguard.repair.shards.rereading import places_text

_SLICE = aten.slice.Tensor
_SPLIT = aten.split.Tensor


@dataclass(frozen=True, slots=True)
class _Read:
    """Rows of a dim of a whole tensor that a rank reads."""

    whole: Var
    dim: int
    rows: range


def gaps(around: Neighbours) -> Iterator[Guess]:
    """A guess for all slices of parts that leave out rows before the next rank's: each rank reads on until there."""
    found = {site.number: reads for site in around.sites.values() if (reads := _reads(site, around.capture))}
    longer = {number: _longer(reads, around.capture) for number, reads in found.items()}
    changed = [number for number, reads in longer.items() if reads is not None and reads != found[number]]
    if not changed:
        return
    calls: dict[int, dict[int, tuple[Node, ...]]] = {}
    for number in changed:
        site = around.sites[number]
        for rank, read in (longer[number] or {}).items():
            node = around.capture.ranks[rank].nodes[site.position[rank]]
            args = (read.whole, read.dim, read.rows.start, read.rows.stop)
            calls.setdefault(rank, {})[site.position[rank]] = (replace(node, args=args, kwargs={}),)
    fitted = refitted(around.capture, calls)
    if fitted is None:
        return
    made, types = fitted
    first = around.sites[changed[0]]
    now, needed = found[changed[0]], longer[changed[0]] or {}
    rank = next(rank for rank in sorted(now) if now[rank] != needed[rank])
    told = (
        f"'{{name}}' leaves out rows between the ranks' parts: rank {rank} reads rows {places_text(tuple(now[rank].rows))},"
        f" needs {places_text(tuple(needed[rank].rows))}"
    )
    yield "wrong-shard", OtherCalls(made, {each: types.get(each, {}) for each in made}, told), first, 0


def _reads(site: Site, capture: Capture) -> dict[int, _Read]:
    """What each rank reads of the whole at a slice of its part; empty where that is not known of every rank."""
    if site.node.op != _SLICE or len(site.position) < capture.world_size:
        return {}
    found = {
        rank: _read(capture.ranks[rank], capture.ranks[rank].nodes[index]) for rank, index in site.position.items()
    }
    known = {rank: read for rank, read in found.items() if read is not None}
    return known if len(known) == len(found) else {}


def _read(graph: Graph, node: Node) -> _Read | None:
    """The rows of the whole that a slice of a part reads."""
    made = graph.producers()
    part, rows = next(node.operands()), _sliced(graph, node)
    if rows is None or part not in made:
        return None
    dim, own = rows
    outer = graph.nodes[made[part]]
    if outer.op == _SLICE:
        given = _sliced(graph, outer)
        return (
            None
            if given is None or given[0] != dim
            else _Read(next(outer.operands()), dim, given[1][own.start : own.stop])
        )
    if outer.op == _SPLIT:
        along = outer.args[2] if len(outer.args) > 2 else 0
        sizes = [graph.types[out].shape[dim] for out in outer.outs[: outer.outs.index(part)]]
        if along != dim or not all(isinstance(size, int) for size in sizes):
            return None
        start = sum(size for size in sizes if isinstance(size, int))
        return _Read(next(outer.operands()), dim, range(start + own.start, start + own.stop))
    return None


def _sliced(graph: Graph, node: Node) -> tuple[int, range] | None:
    """The dim and the rows of a slice without steps."""
    dim, start = (*node.args[1:], 0, 0)[:2]
    if not isinstance(dim, int) or not isinstance(start, int) or len(node.args) > 4:
        return None
    whole, size = graph.types[next(node.operands())].shape[dim], graph.types[node.outs[0]].shape[dim]
    if not isinstance(whole, int) or not isinstance(size, int):
        return None
    start += whole if start < 0 else 0
    return dim, range(start, start + size)


def _longer(reads: Mapping[int, _Read], capture: Capture) -> dict[int, _Read] | None:
    """The same parts, each on to the start of the next; None where they do not follow each other along one axis."""
    for axis, size in capture.mesh.items():
        if size == 1:
            continue
        found: dict[int, _Read] = {}
        for rank, read in reads.items():
            here = capture.coordinates(rank)
            after = next(
                (other for other in reads if capture.coordinates(other) == {**here, axis: here[axis] + 1}), None
            )
            start = read.rows.stop if after is None else reads[after].rows.start
            if start < read.rows.stop:
                return None
            found[rank] = replace(read, rows=range(read.rows.start, start))
        return found
    return None
