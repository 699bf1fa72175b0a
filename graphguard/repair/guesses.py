"""What could be wrong at one site: guesses from its operands, its operator and its place in the program.

Costs say how likely a guess is compared with others: 0 is what a developer most often forgets, 5 what explains almost anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from graphguard.ir import Capture, Var
from graphguard.repair.edits import (
    AddAfterReduction,
    BiasAfterReduction,
    Bypass,
    Edit,
    InsertGather,
    InsertReduction,
    MoveReduction,
    MoveSlice,
    OtherPart,
    Scale,
    SetArgument,
    group_of,
)
from graphguard.repair.slices import Site

Guess = tuple[str, Edit, Site, int]
"""A rule, an edit that would be a repair, the site where it applies, and its cost."""

REDUCING = frozenset({"gg.all_reduce", "gg.reduce_scatter", "gg.reduce"})
SCALING = frozenset({"aten.mul.Tensor", "aten.mul.Scalar", "aten.div.Tensor", "aten.div.Scalar"})
CONTRACTING = frozenset(
    {
        "aten.mm.default",
        "aten.bmm.default",
        "aten.addmm.default",
        "aten.sum.default",
        "aten.sum.dim_IntList",
        "aten.convolution.default",
        "aten.embedding.default",
        "aten.embedding_dense_backward.default",
    }
)
REARRANGING = frozenset(
    {
        "aten.view.default",
        "aten.permute.default",
        "aten.t.default",
        "aten.transpose.int",
        "aten.expand.default",
        "aten.neg.default",
    }
)
CASTS = frozenset({"aten._to_copy.default"})
SLICES = frozenset({"aten.slice.Tensor", "aten.select.int", "aten.narrow.default"})
SPLITS = frozenset({"aten.split.Tensor", "aten.split_with_sizes.default", "aten.unbind.int", "aten.chunk.default"})


@dataclass(frozen=True, slots=True)
class Neighbours:
    """A slice of the program as guesses look at it: sites by number, and who reads whom."""

    capture: Capture
    sites: Mapping[int, Site]
    readers: Mapping[int, tuple[int, ...]]

    @classmethod
    def of(cls, capture: Capture, sites: Mapping[int, Site]) -> Neighbours:
        """The neighbours of a slice."""
        readers: dict[int, list[int]] = {}
        for number, site in sites.items():
            for operand in site.operands:
                readers.setdefault(operand, []).append(number)
        return cls(capture, sites, {number: tuple(found) for number, found in readers.items()})

    def operands(self, site: Site) -> list[Site]:
        """The sites that a site reads."""
        return [self.sites[number] for number in site.operands if number in self.sites]

    def reduction_after(self, site: Site, through: bool) -> Site | None:
        """The only all-reduce that a tensor goes into, over layout changes only, or ``through`` one other operator."""
        seen = site
        while True:
            readers = [self.sites[number] for number in self.readers.get(seen.number, ())]
            if len(readers) != 1:
                return None
            (reader,) = readers
            if reader.node.op == "gg.all_reduce":
                return reader
            if reader.node.op not in REARRANGING:
                if not through or len(self.operands(reader)) != 1:
                    return None
                through = False
            seen = reader


def guesses_at(site: Site, around: Neighbours) -> Iterator[Guess]:
    """Every guess about a site."""
    operands = around.operands(site)
    if site.state == "partial":
        born = all(operand.state != "partial" for operand in operands)
        last = not around.readers.get(site.number) or any(
            around.sites[number].state != "partial" for number in around.readers[site.number]
        )
        reduced = around.reduction_after(site, through=False) is not None
        yield from _reductions(site, (0 if last else 2) + (0 if born else 1) + (2 if reduced else 0))
    if site.node.op in REDUCING:
        yield from _at_reduction(site, around)
    if site.state == "off" and all(operand.state != "off" for operand in operands):
        yield from _at_frontier(site, around)
    if site.node.op in SCALING:
        yield from _at_scaling(site, around.capture)
    if site.node.op in SLICES | SPLITS:
        yield from _at_slices(site, around.capture)


def _reductions(site: Site, cost: int) -> Iterator[Guess]:
    for axis in site.partial_axes:
        yield _reduction_rule(site), InsertReduction(site.tensors, axis), site, cost


def _reduction_rule(site: Site) -> str:
    return "gradient-not-reduced" if site.node.phase == "backward" else "missing-reduction"


def _at_reduction(site: Site, around: Neighbours) -> Iterator[Guess]:
    capture = around.capture
    if site.node.op == "gg.all_reduce":
        yield "extra-reduction", Bypass(site.position), site, 1
        yield from _biases(site, around)
    for other in ("sum", "avg"):
        if other != site.node.args[1]:
            yield "wrong-scale", SetArgument(site.position, 1, dict.fromkeys(site.position, other), "reduce"), site, 1
    rank = min(site.position)
    for axis in capture.mesh:
        groups = {member: group_of(capture, member, axis) for member in site.position}
        if groups[rank] != site.node.args[2] and len(capture.mesh) > 1:
            yield "wrong-group", SetArgument(site.position, 2, groups, axis), site, 2


def _biases(reduction: Site, around: Neighbours) -> Iterator[Guess]:
    """Additions that are made on every rank before the reduction."""
    below = reduction
    while operands := around.operands(below):
        (below, *more) = operands
        if more or below.node.op not in REARRANGING:
            break
    if below.node.op == "aten.add.Tensor" and len(below.node.args) == 2 and below in around.operands(reduction):
        for moved in (1, 0):
            yield "extra-reduction", AddAfterReduction(below.position, reduction.position, moved), below, 1
    if below.node.op == "aten.addmm.default":
        yield "extra-reduction", BiasAfterReduction(below.position, reduction.position), below, 1


def _at_frontier(site: Site, around: Neighbours) -> Iterator[Guess]:
    capture = around.capture
    for operand in around.operands(site):
        if operand.state == "partial":
            yield from _reductions(operand, 1)
            yield from _early_reductions(site, operand, around)
        for axis, place in (operand.relation.placements or {}).items() if operand.relation else ():
            if place.kind == "shard":
                yield "missing-reduction", InsertGather(operand.tensors, axis, place.dim), operand, 4
    if site.node.op in CASTS:
        yield "lower-precision", Bypass(site.position), site, 1
    reduced = around.reduction_after(site, through=False) is not None
    cost = 1 if site.node.op in CONTRACTING and not reduced else 4
    for axis in capture.mesh:
        yield _reduction_rule(site), InsertReduction(site.tensors, axis), site, cost
    for factor in axis_factors(capture):
        yield "wrong-scale", Scale(site.tensors, factor), site, 5


def _early_reductions(site: Site, operand: Site, around: Neighbours) -> Iterator[Guess]:
    """The reduction is there, but behind a non-linear operator that should have seen the whole."""
    later = around.reduction_after(site, through=True)
    if later is not None:
        for axis in operand.partial_axes:
            yield "nonlinear-on-partial", MoveReduction(operand.tensors, axis, later.position), site, 0


def _at_scaling(site: Site, capture: Capture) -> Iterator[Guess]:
    """A constant factor too many, or one that is off by the size of a mesh axis."""
    if len(site.node.args) < 2 or isinstance(site.node.args[1], Var | tuple | str) or site.node.args[1] is None:
        return
    yield "wrong-scale", Bypass(site.position), site, 1
    for factor in axis_factors(capture):
        yield "wrong-scale", Scale(site.tensors, factor), site, 2


def _at_slices(site: Site, capture: Capture) -> Iterator[Guess]:
    """Slices that should start where the rank's part starts: offsets in units of the slice's own length, per mesh axis."""
    for axis, size in capture.mesh.items():
        if size == 1:
            continue
        if site.node.op in SPLITS:
            yield "wrong-shard", OtherPart(site.position, axis), site, 1
            continue
        starts = _starts(site, capture, axis)
        if starts is not None:
            yield "wrong-shard", MoveSlice(site.position, starts, axis), site, 1


def _starts(site: Site, capture: Capture, axis: str) -> dict[int, int] | None:
    starts: dict[int, int] = {}
    for rank, index in site.position.items():
        graph = capture.ranks[rank]
        node = graph.nodes[index]
        dim = node.args[1] if len(node.args) > 1 else 0
        if not isinstance(dim, int) or not isinstance(node.args[0], Var):
            return None
        whole = graph.types[node.args[0]].shape[dim]
        length = 1 if node.op == "aten.select.int" else graph.types[node.outs[0]].shape[dim]
        if not isinstance(length, int) or not isinstance(whole, int):
            return None
        starts[rank] = capture.coordinates(rank)[axis] * length
        if starts[rank] + length > whole:
            return None
    return starts


def axis_factors(capture: Capture) -> list[Fraction]:
    """The sizes of the mesh axes and of the whole mesh, and their reciprocals."""
    sizes = {size for size in (*capture.mesh.values(), capture.world_size) if size > 1}
    return [factor for size in sorted(sizes) for factor in (Fraction(1, size), Fraction(size))]
