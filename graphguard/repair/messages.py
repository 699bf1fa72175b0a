"""What a finding says, in the words of the code it is about."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from graphguard.ir import Capture
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
    Tensors,
    group_of,
)
from graphguard.repair.slices import Site


def _bypassed(rule: str, site: Site, capture: Capture) -> str:
    node = site.node
    if rule == "lower-precision":
        graph = capture.ranks[min(site.position)]
        return f"is narrowed to {graph.types[node.outs[0]].dtype}, which the specification does not do at this value"
    if rule == "wrong-scale":
        number = node.args[1]
        factor = Fraction(number).limit_denominator(1 << 20) if isinstance(number, int | float) else Fraction(1)
        how = "divided" if ".div" in node.op else "multiplied"
        return f"is {how} by {factor_text(factor, capture)}, which the specification does not do"
    return f"is reduced over {_axis_of(node.args[2], capture)} although every rank already holds the whole value"


def _axis_of(group: object, capture: Capture) -> str:
    """The mesh axis that a group runs along, in words."""
    axis = axis_of_group(group, capture)
    return f"axis '{axis}'" if axis else f"ranks {group}"


def axis_of_group(group: object, capture: Capture) -> str:
    """The name of the mesh axis that a group of ranks runs along; empty where it runs along none."""
    for axis in capture.mesh:
        if isinstance(group, tuple) and group and group_of(capture, int(str(group[0])), axis) == group:
            return axis
    return ""


def tensors_text(name: str, tensors: Tensors) -> list[str]:
    """``h@0``, ``h@1``, ... for the ranks that hold a tensor, shortened past four ranks."""
    ranks = sorted(tensors)
    if len(ranks) <= 4:
        return [f"{name}@{rank}" for rank in ranks]
    return [f"{name}@{ranks[0]}", f"{name}@{ranks[1]}", "...", f"{name}@{ranks[-1]}"]


def whole(name: str, tensors: Tensors) -> str:
    """The relation of a tensor that every rank holds."""
    return f"{name} = " + " = ".join(tensors_text(name, tensors))


def summed(name: str, tensors: Tensors) -> str:
    """The relation of a partial sum."""
    return f"{name} = sum(" + ", ".join(tensors_text(name, tensors)) + ")"


def factor_text(factor: Fraction, capture: Capture, axis: str = "") -> str:
    """A factor in terms of mesh axes where it is one of their sizes: ``dp = 2``, ``1/dp = 1/2``, or ``dp or tp = 2``; ``axis`` if it is known."""
    sizes = {name: extent for name, extent in capture.mesh.items() if extent > 1 and axis in ("", name)}
    for size, shown in ((factor, "{}"), (1 / factor, "1/{}")):
        names = [name for name, extent in sizes.items() if extent == size]
        if names:
            inverted = " or ".join(shown.format(name) for name in names)
            return f"{inverted} = {factor}"
    product = "*".join(sizes)
    if len(sizes) > 1 and factor == capture.world_size:
        return f"{product} = {factor}"
    if len(sizes) > 1 and factor == Fraction(1, capture.world_size):
        return f"1/({product}) = {factor}"
    return str(factor)


def headline(rule: str, edit: Edit, name: str, site: Site, capture: Capture) -> str:
    """One line that stands alone: which value, what is wrong with it."""
    match edit:
        case InsertReduction(axis=axis) | MoveReduction(axis=axis) if rule == "nonlinear-on-partial":
            return f"'{name}' is computed from a partial sum over axis '{axis}', but it is not linear: the reduction must come first"
        case InsertReduction(axis=axis) if rule == "gradient-not-reduced":
            return f"the gradient of '{name}' is a partial sum over axis '{axis}': it is not reduced"
        case InsertReduction(axis=axis):
            return f"'{name}' is a partial sum over axis '{axis}' and is used as if it were whole"
        case _:
            return _other_headline(rule, edit, name, site, capture)


def _other_headline(rule: str, edit: Edit, name: str, site: Site, capture: Capture) -> str:
    match edit:
        case InsertGather(axis=axis, dim=dim):
            return f"'{name}' is sharded on dim {dim} over axis '{axis}' and is used as if it were whole"
        case Bypass():
            return f"'{name}' {_bypassed(rule, site, capture)}"
        case Shift(axis=axis, offsets=offsets):
            rank, offset = max(offsets.items(), key=lambda item: item[1])
            return f"'{name}' starts at 0 on every rank along axis '{axis}': rank {rank} needs {offset}.."
        case Scale(factor=factor):
            return f"'{name}' is {factor_text(1 / factor, capture)} times what the specification computes"
        case SetArgument(what="reduce", values=values):
            return _other_reduction(name, next(iter(values.values())), site, capture)
        case SetArgument(what="order"):
            return f"the gathered parts of '{name}' are not put together in rank order"
        case SetArgument(what="dim", values=values):
            return f"the gathered parts of '{name}' are put together along the wrong dim: dim {next(iter(values.values()))} is needed"
        case SetArgument(what=what):
            return f"'{name}' is reduced over the wrong group: axis '{what}' is needed"
        case MoveReduction(axis=axis) if rule == "lower-precision":
            dtype = capture.ranks[min(site.position)].types[site.node.outs[0]].dtype
            return f"'{name}' narrows a partial sum over axis '{axis}' to {dtype}: the specification narrows the sum"
        case MoveSlice(starts=starts):
            return f"'{name}' is the wrong slice: {_ranges(starts, site, capture)}"
        case OtherPart(axis=axis):
            return f"'{name}' is the same part on every rank; each rank needs the part of its place along axis '{axis}'"
        case AddAfterReduction(reduction=reduction) | BiasAfterReduction(reduction=reduction):
            rank = min(reduction)
            axis = _axis_of(capture.ranks[rank].nodes[reduction[rank]].args[2], capture)
            return f"'{name}' adds a term on every rank before the reduction over {axis}, which counts it once per rank"
        case InsertReduction(axis=axis) | MoveReduction(axis=axis):
            return f"'{name}' must be computed after the reduction over axis '{axis}'"


def _other_reduction(name: str, wanted: object, site: Site, capture: Capture) -> str:
    group = site.node.args[2]
    size = Fraction(len(group) if isinstance(group, tuple) else 1)
    axis = axis_of_group(group, capture)
    if wanted == "avg":
        return f"'{name}' is summed where the mean is needed: it is {factor_text(size, capture, axis)} times too large"
    return f"'{name}' is averaged where the sum is needed: it is {factor_text(1 / size, capture, axis)} of what it should be"


def _ranges(starts: Mapping[int, int], site: Site, capture: Capture) -> str:
    """The first rank that reads the wrong place: ``rank 1 reads rows 0..3, needs 4..7``."""
    for rank, start in sorted(starts.items()):
        graph = capture.ranks[rank]
        node = graph.nodes[site.position[rank]]
        dim = node.args[1] if len(node.args) > 1 and isinstance(node.args[1], int) else 0
        now = node.args[2] if len(node.args) > 2 and isinstance(node.args[2], int) else 0
        length = 1 if node.op == "aten.select.int" else graph.types[node.outs[0]].shape[dim]
        if now != start and isinstance(length, int):
            rows = "rows" if dim == 0 else f"dim {dim},"
            return f"rank {rank} reads {rows} {now}..{now + length - 1}, needs {start}..{start + length - 1}"
    return "another place is needed"
