"""What could be wrong at one site: guesses from its operands, its operator and its place in the program.

Costs say how likely a guess is compared with others: 0 is what a developer most often forgets, 5 what explains almost anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from graphguard.ir import Capture, Var
from graphguard.ir.graph import COLLECTIVES
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
    Shift,
    group_of,
)
from graphguard.repair.slices import LAYOUT, REARRANGING, SLICES, SPLITS, Site

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
LINEAR = LAYOUT | CONTRACTING | {"aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Scalar", "aten.div.Scalar"}
NEAR = 3  # operators between a non-linear one and the reduction that should have come before it
CASTS = frozenset({"aten._to_copy.default"})


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

    def reductions_behind(self, site: Site, hops: int = 6) -> list[Site]:
        """The all-reduces that a tensor's value goes into within a few operators, the nearest first."""
        found: list[Site] = []
        edge, seen = [site.number], {site.number}
        for _ in range(hops):
            edge = [reader for number in edge for reader in self.readers.get(number, ()) if reader not in seen]
            seen.update(edge)
            found.extend(
                self.sites[number] for number in dict.fromkeys(edge) if self.sites[number].node.op == "gg.all_reduce"
            )
        return found

    def reduced_after(self, site: Site, axis: str) -> bool:
        """Whether all that becomes of a tensor, over layout changes only, is a reduction over an axis."""
        seen = site
        while True:
            readers = [self.sites[number] for number in self.readers.get(seen.number, ())]
            if len(readers) != 1:
                return False
            (seen,) = readers
            if seen.node.op == "gg.all_reduce":
                rank = min(seen.position)
                return seen.node.args[2] == group_of(self.capture, rank, axis)
            if seen.node.op not in REARRANGING:
                return False


def guesses_at(site: Site, around: Neighbours) -> Iterator[Guess]:
    """Every guess about a site."""
    operands = around.operands(site)
    if site.state == "partial":
        yield from _partial(site, around)
    if site.node.op in REDUCING:
        yield from _at_reduction(site, around)
    if site.state == "off" and all(operand.state != "off" for operand in operands):
        yield from _at_frontier(site, around)
    if site.node.op in SCALING:
        yield from _at_scaling(site, operands, around.capture)
    if site.node.op in SLICES | SPLITS:
        yield from _at_slices(site, around.capture)
    if site.node.op == "aten.cat.default":
        yield from _at_gathered(site, around)
    if site.node.op.startswith("aten.arange"):
        yield from _at_positions(site, around.capture)


def _partial(site: Site, around: Neighbours) -> Iterator[Guess]:
    """A partial sum should be reduced where it is born, else where it is last seen; or before a non-linear operator reads it."""
    readers = [around.sites[number] for number in around.readers.get(site.number, ())]
    born = all(operand.state != "partial" for operand in around.operands(site)) and site.node.op in CONTRACTING
    last = not readers or any(reader.state != "partial" for reader in readers)
    early = [reader for reader in readers if _is_nonlinear(reader) and around.reductions_behind(reader, NEAR)]
    for axis in site.partial_axes:
        insert = InsertReduction(site.tensors, axis)
        for reader in early:
            yield "nonlinear-on-partial", insert, reader, 0
        cost = (0 if born else 1 if last else 3) + (2 if early or around.reduced_after(site, axis) else 0)
        yield _reduction_rule(site), insert, site, cost


def _is_nonlinear(site: Site) -> bool:
    return site.node.op not in LINEAR and site.node.op not in COLLECTIVES and site.node.op not in CASTS


def _reductions(site: Site, cost: int) -> Iterator[Guess]:
    for axis in site.partial_axes:
        yield _reduction_rule(site), InsertReduction(site.tensors, axis), site, cost


def _reduction_rule(site: Site) -> str:
    return "gradient-not-reduced" if site.node.phase == "backward" else "missing-reduction"


def _at_reduction(site: Site, around: Neighbours) -> Iterator[Guess]:
    capture = around.capture
    states = {operand.state for operand in around.operands(site)} or {"whole"}
    if site.node.op == "gg.all_reduce":
        yield "extra-reduction", Bypass(site.position), site, 3 if "partial" in states else 1
        yield from _biases(site, around)
    for other in ("sum", "avg"):
        if other != site.node.args[1]:
            values = dict.fromkeys(site.position, other)
            likely = "off" in states or ("partial" in states and site.node.args[1] == "avg")
            cost = 1 if likely else 2 if states == {"whole"} else 3
            yield "wrong-scale", SetArgument(site.position, 1, values, "reduce"), site, cost
    rank = min(site.position)
    for axis in capture.mesh:
        groups = {member: group_of(capture, member, axis) for member in site.position}
        if groups[rank] != site.node.args[2] and len(capture.mesh) > 1:
            yield "wrong-group", SetArgument(site.position, 2, groups, axis), site, 1


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
    for axis in capture.mesh:
        cost = 0 if site.node.op in CONTRACTING and not around.reduced_after(site, axis) else 4
        yield _reduction_rule(site), InsertReduction(site.tensors, axis), site, cost
    for factor in axis_factors(capture):
        yield "wrong-scale", Scale(site.tensors, factor), site, 5


def _early_reductions(site: Site, operand: Site, around: Neighbours) -> Iterator[Guess]:
    """The reduction is there, but behind a non-linear operator that should have seen the whole."""
    if site.node.op in LINEAR:
        return
    rule = "lower-precision" if site.node.op in CASTS else "nonlinear-on-partial"
    for later in around.reductions_behind(site):
        for axis in operand.partial_axes:
            yield rule, MoveReduction(operand.tensors, axis, later.position), site, 0


def _at_scaling(site: Site, operands: list[Site], capture: Capture) -> Iterator[Guess]:
    """A constant factor too many, or one that is off by the size of a mesh axis."""
    if len(site.node.args) < 2 or isinstance(site.node.args[1], Var | tuple | str) or site.node.args[1] is None:
        return
    newly = site.state == "off" and all(operand.state != "off" for operand in operands)
    yield "wrong-scale", Bypass(site.position), site, 1 if newly else 2
    for factor in axis_factors(capture):
        yield "wrong-scale", Scale(site.tensors, factor), site, 2


def _at_slices(site: Site, capture: Capture) -> Iterator[Guess]:
    """Slices that should start where the rank's part starts: offsets in units of the slice's own length, per mesh axis."""
    for axis, size in capture.mesh.items():
        if size == 1:
            continue
        if site.node.op in SPLITS:
            yield "wrong-shard", OtherPart(site.position, axis), site, 2
            continue
        starts = _starts(site, capture, axis)
        if starts is not None:
            yield "wrong-shard", MoveSlice(site.position, starts, axis), site, 2


def _at_gathered(site: Site, around: Neighbours) -> Iterator[Guess]:
    """The parts of an all-gather, put together along another dim or in another order."""
    operands = around.operands(site)
    if len(operands) != 1 or operands[0].node.op != "gg.all_gather":
        return
    capture = around.capture
    nodes = {rank: capture.ranks[rank].nodes[index] for rank, index in site.position.items()}
    gathered = {rank: capture.ranks[rank].nodes[index] for rank, index in operands[0].position.items()}
    ordered = {rank: gathered[rank].outs for rank in nodes if rank in gathered}
    if any(nodes[rank].args[0] != parts for rank, parts in ordered.items()):
        yield "wrong-shard", SetArgument(site.position, 0, dict(ordered), "order"), site, 1
    rank = min(nodes)
    dim = nodes[rank].args[1] if len(nodes[rank].args) > 1 else 0
    for other in range(len(capture.ranks[rank].types[nodes[rank].outs[0]].shape)):
        if other != dim and len(nodes[rank].args) > 1:
            yield "wrong-shard", SetArgument(site.position, 1, dict.fromkeys(nodes, other), "dim"), site, 1


def _at_positions(site: Site, capture: Capture) -> Iterator[Guess]:
    """Positions that start at zero on every rank, although each holds another part of the sequence."""
    for axis, size in capture.mesh.items():
        offsets = {}
        for rank, var in site.tensors.items():
            (*_, length) = (0, *capture.ranks[rank].types[var].shape)
            offsets[rank] = capture.coordinates(rank)[axis] * (length if isinstance(length, int) else 0)
        if size > 1 and any(offsets.values()):
            yield "wrong-shard", Shift(site.tensors, offsets, axis), site, 1


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
