"""What could be wrong at one site: guesses from its operands, its operator and its place in the program.

Costs say how likely a guess is compared with others: 0 is what a developer most often forgets, 5 what explains almost anything.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from fractions import Fraction

from graphguard.ir import Capture, Var
from graphguard.ir.graph import COLLECTIVES
from graphguard.ops import REDUCTIONS, aten, gg, operators
from graphguard.repair.graph.edits import (
    AddAfterReduction,
    Bypass,
    InsertGather,
    InsertReduction,
    MoveReduction,
    ReduceToAll,
    Scale,
    SetArgument,
    group_of,
)
from graphguard.repair.graph.neighbours import (
    ANY,
    CONTRACTING,
    FILLING,
    LINEAR,
    MASKING,
    MAXIMA,
    NEAR,
    SCALING,
    SUMMING,
    Guess,
    Neighbours,
    scaled,
)
from graphguard.repair.graph.retyping import CASTS
from graphguard.repair.graph.slices import LAYOUT, Site
from graphguard.repair.shards.misplaced import misplaced

LATE = (
    3  # how much less likely a factor is at fault where what it multiplies is wrong already, and by more than a factor
)
_MEANS = operators(lambda op: op.reduces == "mean")
_DERIVED = _MEANS | {aten.pow.Tensor_Scalar}  # whose gradients have factors
_REDUCED = 4  # how much less likely a reduction is missing where all that becomes of a tensor is reduced anyway
_RANKS = 1 << 20  # more than there are
_BITS = {"float64": 64, "float32": 32, "bfloat16": 16, "float16": 16, "float8_e4m3fn": 8, "float8_e5m2": 8}


def guesses_at(site: Site, around: Neighbours) -> Iterator[Guess]:
    """Every guess about a site."""
    operands = around.operands(site)
    if site.state == "partial":
        yield from _partial(site, around)
    if site.node.op == gg.all_gather:
        yield from _other_groups(site, 1, around.capture)
    if site.node.op in REDUCTIONS:
        yield from _at_reduction(site, around)
    if around.at_frontier(site):
        yield from _at_frontier(site, around)
    if site.state == "off" and _factor(site) != 1 and site.number in around.exposed:
        made = around.made(site)
        yield "wrong-scale", Scale(made.tensors, 1 / _factor(site)), made, 3
    if site.node.op in SCALING:
        yield from _at_scaling(site, operands, around)
    if site.state == "off" and narrows(site, around.capture):
        yield "lower-precision", Bypass(site.position), site, 3
    if site.node.op in ANY and site.node.phase == "forward":
        yield from _of_any(site, around)
    yield from misplaced(site, around)
    if site.state == "off" and site.node.phase == "forward" and site.number in around.exposed:
        yield from _unguided(site, around)


def _partial(site: Site, around: Neighbours) -> Iterator[Guess]:
    """A partial sum should be reduced where it is born, else where it is last seen; or before a non-linear operator reads it."""
    readers = around.readers_of(site)
    born = all(operand.state != "partial" for operand in around.operands(site)) and site.node.op in CONTRACTING
    last = not readers or any(reader.state != "partial" for reader in readers) or _gathers(site, readers, around)
    for axis in site.partial_axes:
        nonlinear = [reader for reader in readers if is_nonlinear(reader)]
        late = bool(nonlinear) and around.reduced_later(site, axis)
        early = [reader for reader in nonlinear if late or around.summed_behind(reader, axis)]
        reduced = around.reduced_after(site, axis)
        insert = InsertReduction(site.tensors, axis)
        mean = InsertReduction(site.tensors, axis, "avg") if _factor(site) == around.capture.mesh[axis] else None
        for reader in early:
            yield "nonlinear-on-partial", mean or insert, reader, 0
        cost = (0 if born else 1 if last else 2) + (_REDUCED if reduced else 2 if early else 0)
        if any(_is_mean_by_hand(reader, axis, around) for reader in readers):
            cost += 2
        elif _is_mean_by_hand(site, axis, around) and not reduced:
            cost = min(cost, 0)
        yield _reduction_rule(site), insert, site, cost
        if mean is not None:  # every rank's own mean
            own = site.node.op in _MEANS and all(operand.state != "partial" for operand in around.operands(site))
            yield _reduction_rule(site), mean, site, 2 if own and not early else cost + 1


def _gathers(site: Site, readers: list[Site], around: Neighbours) -> bool:
    """Whether all gradients of one tensor that several products read, each a partial sum, are added up at a site: there the tensor's own is whole but for the ranks."""
    return _adds_products(site, around) and not any(_adds_products(reader, around) for reader in readers)


def _adds_products(site: Site, around: Neighbours) -> bool:
    if site.node.op != aten.add.Tensor or site.node.phase != "backward":
        return False
    below = [_laid_out(operand, around) for operand in around.operands(site)]
    return bool(below) and all(
        each.state == "partial" and (each.node.op in CONTRACTING or _adds_products(each, around)) for each in below
    )


def _laid_out(site: Site, around: Neighbours) -> Site:
    """What a site rearranges."""
    while site.node.op in LAYOUT and (operands := around.operands(site)):
        site = operands[0]
    return site


def _is_mean_by_hand(site: Site, axis: str, around: Neighbours) -> bool:
    """Whether a hook divides a partial gradient by the number of ranks, which is to be added up there, too."""
    node = site.node
    if axis not in site.partial_axes or node.phase != "backward" or node.stack < 0 or node.op not in SCALING:
        return False
    by, size = node.args[1], around.capture.mesh[axis]
    return isinstance(by, int | float) and (by == size if ".div" in node.op else by * size == 1)


def is_nonlinear(site: Site) -> bool:
    """Whether a site computes what must not be computed of a partial sum."""
    if scaled(site):
        return False
    return site.node.op not in LINEAR | FILLING | COLLECTIVES | CASTS


def _reductions(site: Site, around: Neighbours) -> Iterator[Guess]:
    for axis in site.partial_axes:
        later = _REDUCED if around.reduced_after(site, axis) else 0
        yield _reduction_rule(site), InsertReduction(site.tensors, axis), site, 1 + later


def _reduction_rule(site: Site) -> str:
    return "gradient-not-reduced" if site.node.phase == "backward" else "missing-reduction"


def _at_reduction(site: Site, around: Neighbours) -> Iterator[Guess]:
    capture = around.capture
    states = {operand.state for operand in around.operands(site)} or {"whole"}
    if site.node.op == gg.all_reduce:
        yield "extra-reduction", Bypass(site.position), site, 3 if "partial" in states else 0
    if site.node.op in SUMMING:
        yield from _biases(site, around)
    if site.node.op == gg.reduce:
        yield "missing-reduction", ReduceToAll(site.position), site, 1
        return
    for other in ("sum", "avg"):
        if other != site.node.args[1]:
            values = dict.fromkeys(site.position, other)
            seen = site.number in around.exposed and site.state != "whole"
            cost = 3 if not seen else 1 if _scales(site, around) else 2 if states == {"whole"} else 3
            rule = "wrong-scale" if site.node.args[1] in ("sum", "avg") else "wrong-relation"
            yield rule, SetArgument(site.position, 1, values, "reduce"), site, cost
    below = _reduced(site, around)
    largest = below in MAXIMA and site.node.args[1] == "sum" and site.number in around.exposed
    if largest or (below in ANY and site.node.args[1] == "min"):
        yield "wrong-relation", SetArgument(site.position, 1, dict.fromkeys(site.position, "max"), "reduce"), site, 1
    yield from _other_groups(site, 2, capture, {axis for each in around.operands(site) for axis in each.partial_axes})


def _reduced(reduction: Site, around: Neighbours) -> str:
    """The operator whose result is reduced, be it rearranged or of another type: one that tells of each rank's own part the largest, or whether any of it is so."""
    below = around.through(around.operands(reduction), around.operands, LAYOUT | CASTS)
    return next((site.node.op for site in below if site.node.op in MAXIMA | ANY), "")


def _other_groups(
    site: Site, argument: int, capture: Capture, partial: Collection[str] = frozenset()
) -> Iterator[Guess]:
    """A collective over the groups of another axis; a gather only over one of the same size, which has as many results.

    A mean over ranks that hold the same changes nothing: it is likelier meant for the axis over which its operand is ``partial`` than in vain.
    """
    rank = min(site.position)
    for axis in capture.mesh:
        groups = {member: group_of(capture, member, axis) for member in site.position}
        fits = site.node.op != gg.all_gather or len(groups[rank]) == len(site.node.outs)
        if groups[rank] != site.node.args[argument] and len(capture.mesh) > 1 and fits:
            in_vain = axis in partial and site.node.args[1] == "avg" and site.state == "partial"
            yield "wrong-group", SetArgument(site.position, argument, groups, axis), site, 0 if in_vain else 1


def _factor(site: Site) -> Fraction:
    """How many times too large a tensor is, as far as it stands in a relation."""
    return Fraction(1) if site.relation is None else site.relation.factor


def _scales(reduction: Site, around: Neighbours) -> bool:
    """Whether a reduction's own operation explains a factor: a mean of right summands, a sum of what is too large by its ranks."""
    group = reduction.node.args[2]
    size = len(group) if isinstance(group, tuple) else 1
    summands = [operand for operand in around.operands(reduction) if operand.state == "partial"]
    if reduction.node.args[1] == "avg":
        return bool(summands) or reduction.node.op == gg.reduce_scatter  # which reads pieces of the summand
    return any(_factor(operand) == size for operand in summands)


def _biases(reduction: Site, around: Neighbours) -> Iterator[Guess]:
    """Additions that are made on every rank before the reduction."""
    edge = [reduction]
    for _ in range(NEAR):
        edge = [below for site in edge for below in around.operands(site)]
        for below in edge:
            if below.node.op == aten.add.Tensor and len(below.node.args) == 2:
                terms = [place for place in (1, 0) if isinstance(below.node.args[1 - place], Var)]
                for moved in terms:
                    yield "extra-reduction", AddAfterReduction(below.position, reduction.position, moved), below, 1
            if below.node.op == aten.addmm.default:
                yield "extra-reduction", AddAfterReduction(below.position, reduction.position, 0), below, 1
        edge = [below for below in edge if below.node.op in LAYOUT]


def _at_frontier(site: Site, around: Neighbours) -> Iterator[Guess]:
    capture = around.capture
    for operand in around.operands(site):
        if operand.state == "partial":
            if site.node.op not in SUMMING:
                yield from _reductions(operand, around)
            yield from _early_reductions(site, operand, around)
        for axis, place in (operand.relation.placements or {}).items() if operand.relation else ():
            if place.kind == "shard":
                yield "missing-reduction", InsertGather(operand.tensors, axis, place.dim), operand, 4
    if site.node.op in CASTS:
        yield "lower-precision", Bypass(site.position), site, 1
    summed = any(reader.node.op in CONTRACTING for reader in around.readers_of(site))
    for axis in capture.mesh:
        born = site.node.op in CONTRACTING and not around.reduced_after(site, axis)
        cost = 0 if born else 5 if summed else 4  # a sum behind it is where a partial sum is born
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


def _at_scaling(site: Site, operands: list[Site], around: Neighbours) -> Iterator[Guess]:
    """A constant factor too many, or one that is off by the size of a mesh axis; a mean over another number of ranks than were added up is likeliest."""
    if len(site.node.args) < 2 or isinstance(site.node.args[1], Var | tuple | str) or site.node.args[1] is None:
        return
    newly = _factor(site) != 1 and all(_factor(operand) == 1 and operand.state != "off" for operand in operands)
    wrong = any(operand.state == "off" and operand.relation is None for operand in operands)
    cost = 2 + (LATE if wrong and site.node.phase == "backward" else 0)
    factors = axis_factors(around.capture)
    counts = _divisor(site) in factors
    ranks = around.added_up(site) if counts else 0
    if site.node.args[1] != 1:
        derived = LATE if _is_derivative(site, around) or _is_hooks_mean(site, around) else 0
        unfounded = counts and not ranks and not around.reductions_behind(site)  # nothing is added up over ranks
        yield "wrong-scale", Bypass(site.position), site, min(cost, 1 if newly or unfounded else cost) + derived
    for factor in factors:
        mean = ranks > 0 and _divisor(site) == ranks * factor
        yield "wrong-scale", Scale(site.tensors, factor), site, 0 if mean else cost


def _is_derivative(site: Site, around: Neighbours) -> bool:
    """Whether autograd makes a factor that no call of the forward pass multiplies by there: that of a square, or of a mean."""
    if site.node.phase != "backward" or site.node.forward < 0:
        return False
    nodes = around.capture.ranks[min(site.position)].nodes
    return any(node.op in _DERIVED and node.phase == "forward" and node.stack == site.node.forward for node in nodes)


def _is_hooks_mean(site: Site, around: Neighbours) -> bool:
    """Whether what autograd runs beside gradients divides a sum over ranks by their number, as wrappers do that average."""
    if site.node.phase != "backward" or site.node.forward >= 0:
        return False
    sums = (later.node.args[2] for later in around.reductions_behind(site) if later.node.args[1] == "sum")
    return any(isinstance(group, tuple) and len(group) == _divisor(site) for group in sums)


def _divisor(site: Site) -> Fraction:
    """What a site that scales by a number divides by; 0 where that is no number."""
    number = site.node.args[1]
    if not isinstance(number, int | float) or not number or not math.isfinite(number):
        return Fraction(0)
    exact = Fraction(number).limit_denominator(_RANKS)
    return exact if ".div" in site.node.op else 1 / exact if exact else Fraction(0)


def narrows(site: Site, capture: Capture) -> bool:
    """Whether a site rounds its operand to a float type of fewer bits."""
    if site.node.op not in CASTS:
        return False
    types = capture.ranks[min(site.position)].types
    before, after = types[next(site.node.operands())].dtype, types[site.node.outs[0]].dtype
    return before in _BITS and after in _BITS and _BITS[after] < _BITS[before]


def _unguided(site: Site, around: Neighbours) -> Iterator[Guess]:
    """Behind the frontier nothing tells what was meant, as where a loss is computed in another way: what is summed up may be a summand."""
    for axis in around.capture.mesh:
        if site.node.op in MAXIMA:
            yield "missing-reduction", InsertReduction(site.tensors, axis, "max"), site, 1
        elif (site.node.op in CONTRACTING | MASKING or around.masks(site)) and not around.summed_behind(site, axis):
            yield "missing-reduction", InsertReduction(site.tensors, axis), site, 4
    operands = around.operands(site)
    if is_nonlinear(site) and len(operands) == 1 and operands[0].state == "off":
        for later in around.reductions_behind(site, NEAR):
            for axis in around.capture.mesh:
                if later.node.args[2] == group_of(around.capture, min(later.position), axis):
                    yield "nonlinear-on-partial", MoveReduction(operands[0].tensors, axis, later.position), site, 3


def _of_any(site: Site, around: Neighbours) -> Iterator[Guess]:
    """Whether anything of a rank's part is so is asked of all ranks, where the truth becomes a number that can be reduced; nothing tells of a truth that it is a part."""
    readers = around.readers_of(site)
    flag = readers[0] if len(readers) == 1 and readers[0].node.op in CASTS else site
    for axis in around.capture.mesh:
        if not around.summed_behind(flag, axis):
            yield "missing-reduction", InsertReduction(flag.tensors, axis, "max"), flag, 1


def axis_factors(capture: Capture) -> list[Fraction]:
    """The sizes of the mesh axes and of the whole mesh, and their reciprocals."""
    sizes = {size for size in (*capture.mesh.values(), capture.world_size) if size > 1}
    return [factor for size in sorted(sizes) for factor in (Fraction(1, size), Fraction(size))]
