"""Which part of a tensor a rank reads at a slice, a selection or a split, and which it should."""

from __future__ import annotations

from dataclasses import dataclass

from graphguard.ir import Capture, Graph, Node
from graphguard.ops import aten, traits_of
from graphguard.repair.graph.edits import MoveSlice, OtherPart
from graphguard.repair.graph.slices import SPLITS, Site


@dataclass(frozen=True, slots=True)
class Part:
    """``length`` places of a dim, from ``start`` in steps of ``step``."""

    dim: int
    start: int
    length: int
    step: int = 1


def read_parts(site: Site, capture: Capture) -> dict[int, Part]:
    """The part that each rank reads at a site; ranks that read several parts of a split, or none, are left out."""
    found = {}
    for rank, index in site.position.items():
        graph = capture.ranks[rank]
        node = graph.nodes[index]
        part = _read_of_split(graph, node) if node.op in SPLITS else _sliced(graph, node)
        if part is not None:
            found[rank] = part
    return found


def needed_parts(edit: MoveSlice | OtherPart, site: Site, capture: Capture) -> dict[int, Part]:
    """The part that each rank reads at a site after an edit."""
    found = {}
    for rank, part in read_parts(site, capture).items():
        if isinstance(edit, MoveSlice):
            found[rank] = Part(part.dim, edit.starts[rank], part.length)
            continue
        graph = capture.ranks[rank]
        parts = _split(graph, graph.nodes[site.position[rank]])
        place = capture.coordinates(rank)[edit.axis]
        if place < len(parts):
            found[rank] = parts[place]
    return found


def _dim(graph: Graph, node: Node, index: int) -> int:
    """A dim that a node names, counted from the front."""
    dim = node.args[index] if len(node.args) > index else node.kwargs.get("dim", 0)
    rank = len(graph.types[next(node.operands())].shape)
    return (dim + rank if dim < 0 else dim) if isinstance(dim, int) else 0


def split_dim(graph: Graph, node: Node) -> int:
    """The dim along which a split cuts, counted from the front."""
    return _dim(graph, node, traits_of(node.op).dim_at or 0)


def _sliced(graph: Graph, node: Node) -> Part | None:
    dim = _dim(graph, node, 1)
    start = node.args[2] if len(node.args) > 2 else 0
    whole = graph.types[next(node.operands())].shape[dim]
    if not isinstance(start, int) or not isinstance(whole, int):
        return None
    start += whole if start < 0 else 0
    if node.op == aten.select.int:
        return Part(dim, start, 1)
    length = graph.types[node.outs[0]].shape[dim]
    step = node.args[4] if len(node.args) > 4 else 1
    return Part(dim, start, length, step) if isinstance(length, int) and isinstance(step, int) else None


def _split(graph: Graph, node: Node) -> list[Part]:
    """Every part of a split, in order."""
    dim = split_dim(graph, node)
    parts: list[Part] = []
    start = 0
    for out in node.outs:
        length = 1 if node.op == aten.unbind.int else graph.types[out].shape[dim]
        if not isinstance(length, int):
            return []
        parts.append(Part(dim, start, length))
        start += length
    return parts


def _read_of_split(graph: Graph, node: Node) -> Part | None:
    used = {operand for other in graph.nodes for operand in other.operands()} | set(graph.outputs.values())
    read = [index for index, out in enumerate(node.outs) if out in used]
    parts = _split(graph, node)
    return parts[read[0]] if len(read) == 1 and parts else None
