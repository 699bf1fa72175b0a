"""Tensors that are joined or grouped in another shape than is meant: gathered parts along another dim, groups counted for the whole where a rank has its part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from graphguard.ir import Capture, Graph, Node, Span
from graphguard.ops import EXCHANGES, aten, gg, operators
from graphguard.repair.graph.edits import OtherCalls
from graphguard.repair.graph.meanings import Joining, Regrouping
from graphguard.repair.graph.neighbours import Guess, Neighbours
from graphguard.repair.graph.retyping import Shape, refitted
from graphguard.repair.graph.slices import Site

_VIEWS = operators(lambda op: op.moves == "view" and op.shape_at == 1)
_NORMS: Mapping[str, int] = {aten.native_group_norm.default: 6}
"""Where an operator says how many groups there are."""
Change = tuple[Site, Mapping[int, Node]]
"""A site, and by rank the call that takes the place of its own."""


def regrouped(around: Neighbours) -> Iterator[Guess]:
    """A guess for each other dim to join along, and each count of groups that a mesh axis may have to do with: all places of one line, then each alone."""
    yield from _joints(around)
    yield from _groups(around)


def _joints(around: Neighbours) -> Iterator[Guess]:
    """Gathered parts joined along another dim, which gives another shape; what one call exchanges into a tensor has no other dim."""
    found: dict[tuple[int, Shape], list[Site]] = {}
    for site in around.sites.values():
        read = around.operands(site)
        joins = site.node.op == aten.cat.default and len(read) == 1 and read[0].node.op in EXCHANGES
        if joins and not (read[0].node.op == gg.all_to_all and read[0].node.stack == site.node.stack):
            dim, shape = _joined(site, around)
            found.setdefault((dim, shape), []).append(site)
    for (dim, shape), sites in found.items():
        for other in range(len(shape)):
            told = f"'{{name}}' joins the parts of the ranks along dim {dim}: dim {other} is needed"
            for group in _together(sites):
                changes = [(site, _with(around, site, 1, other)) for site in group]
                if other != dim and (edit := _edit(around.capture, changes, told)) is not None:
                    yield "wrong-shard", replace(edit, means=Joining(other)), group[0], 1


def _joined(site: Site, around: Neighbours) -> tuple[int, Shape]:
    """The dim along which a site joins parts, and the shape of what it gives."""
    graph, dim = around.capture.ranks[min(site.position)], site.node.args[1] if len(site.node.args) > 1 else 0
    shape = _shape(graph, site.node)
    return (dim % len(shape) if isinstance(dim, int) and shape else 0), shape


def _shape(graph: Graph, node: Node) -> Shape:
    return tuple(size if isinstance(size, int) else 0 for size in graph.types[node.outs[0]].shape)


def _together(sites: Sequence[Site]) -> list[Sequence[Site]]:
    return [sites, *([site] for site in sites if len(sites) > 1)]


def _with(around: Neighbours, site: Site, index: int, value: int) -> dict[int, Node]:
    """A site's call with another number as one of its arguments."""
    nodes = {rank: around.capture.ranks[rank].nodes[at] for rank, at in site.position.items()}
    return {
        rank: replace(node, args=(*node.args[:index], value, *node.args[index + 1 :])) for rank, node in nodes.items()
    }


def _edit(capture: Capture, changes: Sequence[Change], told: str) -> OtherCalls | None:
    calls: dict[int, dict[int, tuple[Node, ...]]] = {}
    for site, nodes in changes:
        for rank, node in nodes.items():
            calls.setdefault(rank, {})[site.position[rank]] = (node,)
    fitted = refitted(capture, calls)
    if fitted is None:
        return None
    made, types = fitted
    return OtherCalls(made, {rank: types.get(rank, {}) for rank in made}, told)


def _groups(around: Neighbours) -> Iterator[Guess]:
    """Groups of a dim that a view tells apart, or that an operator normalises: as many as the whole has, of a rank's part, or the other way round."""
    families: dict[tuple[Span | str, str, Shape], list[Site]] = {}
    for site in around.sites.values():
        if site.node.op in _VIEWS or site.node.op in _NORMS:
            graph = around.capture.ranks[min(site.position)]
            place = next((frame.span for frame in graph.stack_of(site.node.stack)), "")
            families.setdefault((place, site.node.op, _shape(graph, site.node)), []).append(site)
    for sites in families.values():
        for axis, size in around.capture.mesh.items():
            for times in (Fraction(1, size), Fraction(size)) if size > 1 else ():
                for group in _together(sites):
                    yield from _counted(around, group, axis, times)


def _counted(around: Neighbours, sites: Sequence[Site], axis: str, times: Fraction) -> Iterator[Guess]:
    """That many times as many groups at some sites."""
    site = sites[0]
    graph = around.capture.ranks[min(site.position)]
    if site.node.op in _NORMS:
        place = _NORMS[site.node.op]
        now = site.node.args[place]
        new = now * times if isinstance(now, int) else Fraction(0)
        if new and new.denominator == 1 and new in _norms_meant(around.capture, site.node.op):
            told = f"'{{name}}' has {now} groups on every rank; {new} of the specification's are the rank's own along axis '{axis}'"
            changes = [(each, _with(around, each, place, int(new))) for each in sites]
            if (edit := _edit(around.capture, changes, told)) is not None:
                yield "wrong-scale", replace(edit, means=Regrouping(axis, times)), site, 1
        return
    shape = _shape(graph, site.node)
    for count, content in _split_apart(graph, site.node, shape):
        groups, elements = shape[count] * times, shape[content] / times
        other = tuple(
            int(groups) if place == count else int(elements) if place == content else each
            for place, each in enumerate(shape)
        )
        exact = groups.denominator == elements.denominator == 1 and groups > 0
        if exact and other[content] in _contents_meant(around.capture, len(shape), content):
            told = f"'{{name}}' makes groups of {shape[content]} on every rank; the specification's have {other[content]}: what it counts them by is not that of the rank's part along axis '{axis}'"
            changes = [(each, _with_shape(around, each, other)) for each in sites]
            if (edit := _edit(around.capture, changes, told)) is not None:
                yield "wrong-scale", replace(edit, means=Regrouping(axis, times)), site, 1


def _norms_meant(capture: Capture, op: str) -> set[int]:
    """The counts of groups that the specification's share of every rank may be."""
    spec = capture.spec
    counts = [node.args[_NORMS[op]] for node in spec.nodes if node.op == op] if spec is not None else []
    sizes = {1, *capture.mesh.values()}
    return {count // size for count in counts if isinstance(count, int) for size in sizes if count % size == 0}


def _contents_meant(capture: Capture, dims: int, place: int) -> set[int]:
    """How large groups are in the specification's views of as many dims."""
    spec = capture.spec
    views = [_shape(spec, node) for node in spec.nodes if node.op in _VIEWS] if spec is not None else []
    return {shape[place] for shape in views if len(shape) == dims}


def _split_apart(graph: Graph, node: Node, shape: Shape) -> Iterator[tuple[int, int]]:
    """The pairs of neighbouring dims of a view that one dim of its operand is split into."""
    before = tuple(size if isinstance(size, int) else 0 for size in graph.types[next(node.operands())].shape)
    for place in range(len(shape) - 1):
        one, other = shape[place], shape[place + 1]
        merged = (*shape[:place], one * other, *shape[place + 2 :])
        if merged == before:
            yield place, place + 1


def _with_shape(around: Neighbours, site: Site, shape: Shape) -> dict[int, Node]:
    nodes = {rank: around.capture.ranks[rank].nodes[at] for rank, at in site.position.items()}
    return {rank: replace(node, args=(node.args[0], shape), kwargs={}) for rank, node in nodes.items()}
