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
    ReduceToAll,
    Scale,
    SetArgument,
    Shift,
    group_of,
)
from graphguard.repair.slices import LAYOUT, SLICES, SPLITS, Site, exposed

Guess = tuple[str, Edit, Site, int]
"""A rule, an edit that would be a repair, the site where it applies, and its cost."""

REDUCING = frozenset({"gg.all_reduce", "gg.reduce_scatter", "gg.reduce"})
SUMMING = frozenset({"gg.all_reduce", "gg.reduce_scatter"})
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
_BITS = {"float64": 64, "float32": 32, "bfloat16": 16, "float16": 16, "float8_e4m3fn": 8, "float8_e5m2": 8}


@dataclass(frozen=True, slots=True)
class Neighbours:
    """A slice of the program as guesses look at it: sites by number, and who reads whom."""

    capture: Capture
    sites: Mapping[int, Site]
    readers: Mapping[int, tuple[int, ...]]
    exposed: frozenset[int]

    @classmethod
    def of(cls, capture: Capture, sites: Mapping[int, Site]) -> Neighbours:
        """The neighbours of a slice."""
        readers: dict[int, list[int]] = {}
        for number, site in sites.items():
            for operand in site.operands:
                readers.setdefault(operand, []).append(number)
        found = {number: tuple(reading) for number, reading in readers.items()}
        return cls(capture, sites, found, exposed(sites, found))

    def at_frontier(self, site: Site) -> bool:
        """Whether a site is off the relation though all that it reads is on it, and no tensor on the relation hides it from the outputs."""
        if site.state != "off" or site.number not in self.exposed:
            return False
        return all(operand.state != "off" for operand in self.operands(site))

    def operands(self, site: Site) -> list[Site]:
        """The sites that a site reads."""
        return [self.sites[number] for number in site.operands if number in self.sites]

    def reductions_behind(self, site: Site, hops: int = 6) -> list[Site]:
        """The sums over ranks that a tensor's value goes into within a few operators, the nearest first."""
        found: list[Site] = []
        edge, seen = [site.number], {site.number}
        for _ in range(hops):
            edge = [reader for number in edge for reader in self.readers.get(number, ()) if reader not in seen]
            seen.update(edge)
            found.extend(self.sites[number] for number in dict.fromkeys(edge) if self.sites[number].node.op in SUMMING)
        return found

    def summed_behind(self, site: Site, axis: str) -> bool:
        """Whether an all-reduce over an axis comes soon behind a site."""
        rank = min(site.position)
        group = group_of(self.capture, rank, axis)
        return any(later.node.args[2] == group for later in self.reductions_behind(site, NEAR))

    def reduced_after(self, site: Site, axis: str) -> bool:
        """Whether all that becomes of a tensor, over layout changes only, is a reduction over an axis."""
        edge, reduced = {site.number}, False
        while edge:
            readers = [self.sites[number] for seen in edge for number in self.readers.get(seen, ())]
            if not readers or any(reader.node.op not in LAYOUT | SUMMING for reader in readers):
                return False
            for reader in readers:
                if reader.node.op in SUMMING:
                    rank = min(reader.position)
                    if reader.node.args[2] != group_of(self.capture, rank, axis):
                        return False
                    reduced = True
            edge = {reader.number for reader in readers if reader.node.op not in SUMMING}
        return reduced


def guesses_at(site: Site, around: Neighbours) -> Iterator[Guess]:
    """Every guess about a site."""
    operands = around.operands(site)
    if site.state == "partial":
        yield from _partial(site, around)
    if site.node.op == "gg.all_gather":
        yield from _other_groups(site, 1, around.capture)
    if site.node.op in REDUCING:
        yield from _at_reduction(site, around)
    if around.at_frontier(site):
        yield from _at_frontier(site, around)
    if site.state == "off" and _factor(site) != 1 and site.number in around.exposed:
        yield "wrong-scale", Scale(site.tensors, 1 / _factor(site)), site, 3
    if site.node.op in SCALING:
        yield from _at_scaling(site, operands, around.capture)
    if site.state == "off" and narrows(site, around.capture):
        yield "lower-precision", Bypass(site.position), site, 3
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
    for axis in site.partial_axes:
        early = [reader for reader in readers if is_nonlinear(reader) and around.summed_behind(reader, axis)]
        insert = InsertReduction(site.tensors, axis)
        for reader in early:
            yield "nonlinear-on-partial", insert, reader, 0
        cost = (0 if born else 1 if last else 2) + (4 if around.reduced_after(site, axis) else 2 if early else 0)
        yield _reduction_rule(site), insert, site, cost


def is_nonlinear(site: Site) -> bool:
    """Whether a site computes what must not be computed of a partial sum."""
    if site.node.op in SCALING and not isinstance(site.node.args[-1], Var):
        return False  # times a number
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
        yield "extra-reduction", Bypass(site.position), site, 3 if "partial" in states else 0
    if site.node.op in SUMMING:
        yield from _biases(site, around)
    if site.node.op == "gg.reduce":
        yield "missing-reduction", ReduceToAll(site.position), site, 1
        return
    for other in ("sum", "avg"):
        if other != site.node.args[1]:
            values = dict.fromkeys(site.position, other)
            seen = site.number in around.exposed and site.state != "whole"
            cost = 3 if not seen else 1 if _scales(site, around) else 2 if states == {"whole"} else 3
            yield "wrong-scale", SetArgument(site.position, 1, values, "reduce"), site, cost
    yield from _other_groups(site, 2, capture)


def _other_groups(site: Site, argument: int, capture: Capture) -> Iterator[Guess]:
    """A collective over the groups of another axis; a gather only over one of the same size, which has as many results."""
    rank = min(site.position)
    for axis in capture.mesh:
        groups = {member: group_of(capture, member, axis) for member in site.position}
        fits = site.node.op != "gg.all_gather" or len(groups[rank]) == len(site.node.outs)
        if groups[rank] != site.node.args[argument] and len(capture.mesh) > 1 and fits:
            yield "wrong-group", SetArgument(site.position, argument, groups, axis), site, 1


def _factor(site: Site) -> Fraction:
    """How many times too large a tensor is, as far as it stands in a relation."""
    return Fraction(1) if site.relation is None else site.relation.factor


def _scales(reduction: Site, around: Neighbours) -> bool:
    """Whether a reduction's own operation explains a factor: a mean of right summands, a sum of what is too large by its ranks."""
    group = reduction.node.args[2]
    size = len(group) if isinstance(group, tuple) else 1
    summands = [operand for operand in around.operands(reduction) if operand.state == "partial"]
    if reduction.node.args[1] == "avg":
        return bool(summands) or reduction.node.op == "gg.reduce_scatter"  # which reads pieces of the summand
    return any(_factor(operand) == size for operand in summands)


def _biases(reduction: Site, around: Neighbours) -> Iterator[Guess]:
    """Additions that are made on every rank before the reduction."""
    edge = [reduction]
    for _ in range(NEAR):
        edge = [below for site in edge for below in around.operands(site)]
        for below in edge:
            if below.node.op == "aten.add.Tensor" and len(below.node.args) == 2:
                terms = [place for place in (1, 0) if isinstance(below.node.args[1 - place], Var)]
                for moved in terms:
                    yield "extra-reduction", AddAfterReduction(below.position, reduction.position, moved), below, 1
            if below.node.op == "aten.addmm.default" and reduction.node.op == "gg.all_reduce":
                yield "extra-reduction", BiasAfterReduction(below.position, reduction.position), below, 1
        edge = [below for below in edge if below.node.op in LAYOUT]


def _at_frontier(site: Site, around: Neighbours) -> Iterator[Guess]:
    capture = around.capture
    for operand in around.operands(site):
        if operand.state == "partial":
            if site.node.op not in SUMMING:
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
    newly = _factor(site) != 1 and all(_factor(operand) == 1 and operand.state != "off" for operand in operands)
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


def narrows(site: Site, capture: Capture) -> bool:
    """Whether a site rounds its operand to a float type of fewer bits."""
    if site.node.op not in CASTS:
        return False
    types = capture.ranks[min(site.position)].types
    before, after = types[next(site.node.operands())].dtype, types[site.node.outs[0]].dtype
    return before in _BITS and after in _BITS and _BITS[after] < _BITS[before]


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
