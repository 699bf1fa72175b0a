"""What a finding says, in the words of the code it is about."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from graphguard.ir import Capture, Placement, Var
from graphguard.relations.relation import describe_placements
from graphguard.repair.edits import (
    Accumulate,
    AddAfterReduction,
    BiasAfterReduction,
    Bypass,
    Call,
    ChangeCall,
    Edit,
    InsertCall,
    InsertGather,
    InsertReduction,
    Mask,
    MoveDiagonal,
    MoveReduction,
    MoveSlice,
    OtherCalls,
    OtherPart,
    OwnPlace,
    ReduceToAll,
    Reread,
    Scale,
    SetArgument,
    Shift,
    SwapTensors,
    Tensors,
    group_of,
)
from graphguard.repair.masks import BOUNDS, SYMBOLS
from graphguard.repair.neighbours import SCALING
from graphguard.repair.parts import Part, needed_parts, read_parts
from graphguard.repair.places import differing_number
from graphguard.repair.settings import other_setting
from graphguard.repair.slices import Site
from graphguard.repair.triangles import unmoved
from graphguard.repair.unlike import misread_text, misreading
from graphguard.repair.widening import rounding_text

Named = Callable[[int, Var], str]
"""What the author calls a tensor of a rank; empty where the source does not say."""

SHORT = 24
_READABLE = 9999  # of a factor that is told as a ratio
_CLOSE = 1e-9  # how near a square must be to a ratio
_VERBS = {"sum": "summed", "avg": "averaged"}
_OTHER_REDUCTIONS = {"max": "maximum", "min": "minimum", "product": "product"}
_OWN = {"max": "the maximum of each rank's own part", "avg": "the mean of each rank's own part"}
_OPERATIONS = {
    "add": "a sum",
    "sub": "a difference",
    "mul": "a product",
    "div": "a quotient",
    "pow": "a power",
    "bmm": "a product",
    "mm": "a product",
    "sdpa": "scaled_dot_product_attention",
}
_MODES = {
    "constant_pad": "pad",
    "reflection_pad": "pad with mode='reflect'",
    "replication_pad": "pad with mode='replicate'",
    "upsample_nearest_exact": "interpolate with mode='nearest-exact'",
    "upsample_nearest": "interpolate with mode='nearest'",
    "upsample_linear": "interpolate with mode='linear'",
    "upsample_bilinear": "interpolate with mode='bilinear'",
    "upsample_bicubic": "interpolate with mode='bicubic'",
    "upsample_trilinear": "interpolate with mode='trilinear'",
    "nll_loss": "nll_loss",
    "embedding_bag": "embedding_bag",
    "fft": "a Fourier transform",
    "grid_sampler": "grid_sample",
}
"""What functions of PyTorch call by name are several operators, known by how these begin."""


def operation(op: str) -> str:
    """An operator as a PyTorch user knows it: ``gelu``, ``all_reduce``, ``the gradient of softmax``, ``torch.ops.mylib.scan``."""
    space, name = op.split(".")[:2]
    if op == "aten.view.dtype":
        return "view(dtype)"
    if space not in ("aten", "gg"):
        return f"torch.ops.{space}.{name}"
    gradient = name.endswith(("_backward", "_backward_data"))
    name = re.sub(r"(_backward|_backward_data)$", "", name).removeprefix("_").removeprefix("native_")
    known = _OPERATIONS.get(name) or next((told for start, told in _MODES.items() if name.startswith(start)), name)
    return f"the gradient of {known}" if gradient else known


def _result_of(op: str) -> str:
    """``a sum``, ``the gradient of softmax``, ``the result of gelu``."""
    name = operation(op)
    return name if name.startswith(("a ", "the ")) else f"the result of {name}"


def axis_of_group(group: object, capture: Capture) -> str:
    """The name of the mesh axis that a group of ranks runs along; empty where it runs along none."""
    for axis in capture.mesh:
        if isinstance(group, tuple) and group and group_of(capture, int(str(group[0])), axis) == group:
            return axis
    return ""


def _group_text(group: object, capture: Capture) -> str:
    """A group of ranks in words: the axis that it runs along, all ranks, or the ranks themselves."""
    if axis := axis_of_group(group, capture):
        return f"axis '{axis}'"
    ranks = group if isinstance(group, tuple) else ()
    return "all ranks" if len(ranks) == capture.world_size else f"ranks {', '.join(map(str, ranks))}"


def _size(group: object) -> Fraction:
    return Fraction(len(group) if isinstance(group, tuple) else 1)


def tensors_text(name: str, tensors: Tensors) -> list[str]:
    """``h@0``, ``h@1``, ... for the ranks that hold a tensor, shortened past four ranks."""
    ranks = sorted(tensors)
    if len(ranks) <= 4:
        return [f"{name}@{rank}" for rank in ranks]
    return [f"{name}@{ranks[0]}", f"{name}@{ranks[1]}", "...", f"{name}@{ranks[-1]}"]


def needed_and_found(name: str, site: Site, axis: str, capture: Capture) -> tuple[str, str]:
    """How a partial sum should stand to the specification's tensor, and how it does, as two relation texts.

    Rank by rank where the mesh has one axis (``y = sum(y@0, y@1)``), else axis by axis (``y: partial(sum) over tp, shard(0) over dp``).
    An expression that is too long to be repeated is not.
    """
    if not re.fullmatch(r"[\w.()]+", name) or len(name) > SHORT:
        return f"the whole value on every rank of axis '{axis}'", f"one summand on every rank of axis '{axis}'"
    if sum(size > 1 for size in capture.mesh.values()) == 1:
        held = tensors_text(name, site.tensors)
        return f"{name} = {' = '.join(held)}", f"{name} = sum({', '.join(held)})"
    known = {} if site.relation is None else site.relation.placements or {}
    others = {other: place for other, place in known.items() if other != axis and place.kind != "replicate"}
    found = describe_placements({axis: Placement("partial"), **others})
    return f"{name}: {describe_placements({axis: Placement('replicate'), **others})}", f"{name}: {found}"


def factor_text(factor: Fraction, capture: Capture, axis: str = "", count: str = "") -> str:
    """A factor in terms of mesh axes where it is one of their sizes: ``dp = 2``, ``1/dp = 1/2``, or ``dp or tp = 2``; ``axis`` if it is known.

    ``count`` is what the author calls the number instead.  What is no ratio of small numbers is a root, ``1/sqrt(8) = 0.353553``, else a decimal number.
    """
    if not factor:
        return "0"
    if count:
        return f"{count} = {factor}" if factor.numerator >= factor.denominator else f"1/{count} = {factor}"
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
    return str(factor) if max(abs(factor.numerator), factor.denominator) <= _READABLE else _decimal(factor)


def _decimal(factor: Fraction) -> str:
    """A factor that is no ratio of small numbers, as the root that it is of such a ratio, and in six digits."""
    shown, number = f"{float(factor):.6g}", abs(float(factor))
    square = Fraction(number * number).limit_denominator(_READABLE)
    if not square or square.numerator > _READABLE or abs(float(square) - number * number) > _CLOSE * number * number:
        return shown
    sign = "-" if factor < 0 else ""
    if square.numerator == 1:
        return f"{sign}1/sqrt({square.denominator}) = {shown}"
    return f"{sign}sqrt({square}) = {shown}"


def headline(rule: str, edit: Edit, name: str, site: Site, capture: Capture, named: Named, count: str = "") -> str:
    """One line that stands alone: which value, what is wrong with it; ``count`` is the author's name for a factor."""
    match edit:
        case InsertReduction(axis=axis) | MoveReduction(axis=axis) if rule == "nonlinear-on-partial":
            return _too_early(name, axis, site)
        case InsertReduction(axis=axis) if rule == "gradient-not-reduced":
            return _gradient(name, axis, averaged=edit.reduce == "avg")
        case InsertReduction():
            return _unreduced(edit, name, site)
        case MoveReduction(axis=axis):
            dtype = capture.ranks[min(site.position)].types[site.node.outs[0]].dtype
            return f"'{name}' is rounded to {dtype} before the sum over axis '{axis}'; the specification rounds the sum"
        case InsertGather(axis=axis, dim=dim):
            return f"'{name}' is sharded on dim {dim} over axis '{axis}' and is used as if it were whole"
        case Scale(factor=factor):
            own = site.node.phase != "backward" or re.match(r"out\b|grad\(", name)
            what = f"'{name}'" if own else f"the gradient of '{name}'"
            return f"{what} is {factor_text(1 / factor, capture, count=count)} times what the specification computes"
        case Bypass():
            return _superfluous(rule, name, site, capture, count)
        case AddAfterReduction() | BiasAfterReduction():
            return _added_early(edit, capture, named)
        case MoveDiagonal() | MoveSlice() | OtherPart() | Shift():
            return _wrong_part(edit, name, site, capture, named)
        case ReduceToAll():
            node = site.node
            return f"'{name}' is whole on rank {node.args[1]} only: {operation(node.op)} leaves every other rank its own summand"
        case (
            SetArgument(what="operand") | InsertCall() | ChangeCall() | SwapTensors() | Reread() | Accumulate() | Mask()
        ):
            return _guided(edit, name, site, capture, named)
        case SetArgument():
            return _wrong_argument(edit, name, site, capture)
        case OwnPlace() | OtherCalls():
            return _by_rank(edit, name, capture)


def _by_rank(edit: OwnPlace | OtherCalls, name: str, capture: Capture) -> str:
    """What is another thing from rank to rank."""
    return _wrong_place(edit, name, capture) if isinstance(edit, OwnPlace) else edit.told.replace("{name}", name)


def held_before(edit: InsertReduction) -> str:
    """What every rank holds where a reduction is missing."""
    return _OWN.get(edit.reduce, "a partial sum")


def unadded(edit: object, name: str) -> str:
    """That ranks make summands in places of their own, which have one name in the end."""
    assert isinstance(edit, InsertReduction)
    return f"'{name}' is {held_before(edit)} over axis '{edit.axis}': the ranks make it in different places, and nothing adds up what they make"


def _unreduced(edit: InsertReduction, name: str, site: Site) -> str:
    if len(site.position) == 1:
        return f"'{name}' is made on rank {min(site.position)} only: the other ranks of axis '{edit.axis}' go on without it"
    return f"'{name}' is {held_before(edit)} over axis '{edit.axis}' and is used as if it were whole"


def _too_early(name: str, axis: str, site: Site) -> str:
    does = operation(site.node.op)
    return f"'{name}' is {does} of a partial sum over axis '{axis}', and {does} is not linear: the sum must come first"


def _guided(edit: Edit, name: str, site: Site, capture: Capture, named: Named) -> str:
    """A repair that the specification suggested, or the ranks' own programs."""
    match edit:
        case Accumulate(_, earlier):
            count = len(next(iter(earlier.values())))
            passes = "the pass" if count == 1 else f"the {count} passes"
            return f"'{name}' keeps what the last pass of the loop gives: that of {passes} before it is dropped instead of added"
        case Mask(_, masks, _, fill):
            return _unmasked(name, named(min(masks), masks[min(masks)]), fill)
        case InsertCall(call=call) if (factor := _factor_of(call)) is not None:
            return f"'{name}' is not {factor}, as in the specification"
        case InsertCall(tensors, call) if call.op == "aten.add.Tensor" and (term := _term(tensors, call, named)):
            return f"'{term}' is not added to '{name}', as it is in the specification"
        case InsertCall(call=call):
            return f"'{name}' lacks {operation(call.op)}, which the specification computes of it"
        case ChangeCall(call=call) if call.op == site.node.op and (meant_factor := _factor_of(call)) is not None:
            own = Call(call.op, {min(site.position): site.node.args}, {})
            found = _factor_of(own)
            if found == meant_factor:
                found, meant_factor = _factor_of(own, 12), _factor_of(call, 12)
            return f"'{name}' is {found}; in the specification it is {meant_factor}"
        case ChangeCall(call=call) if call.expression is None and call.op in BOUNDS:
            now, wanted = (SYMBOLS[op.split(".")[1]] for op in (site.node.op, call.op))
            return f"'{name}' compares by {now} where {wanted} is needed: the bound itself is on the wrong side"
        case ChangeCall(call=call) if operation(call.op) == operation(site.node.op):
            return (
                _other_number(name, site, call)
                or f"'{name}' is {operation(call.op)} with another argument than in the specification"
            )
        case ChangeCall(call=call):
            return f"'{name}' is {operation(site.node.op)} where the specification computes {operation(call.op)}"
        case SwapTensors(tensors, others):
            rank = min(tensors)
            first, second = named(rank, tensors[rank]), named(rank, others[rank])
            told = (
                f"'{first}' and '{second}'" if first and second and first != second else f"'{name}' and another tensor"
            )
            return f"{told} are in each other's place"
    return _another_tensor(edit, name, site, capture, named)


def _other_number(name: str, site: Site, call: Call) -> str:
    """That one number is another one than in the specification, by its name where it has one; empty where that is not all."""
    meant = replace(site.node, args=call.args[min(site.position)], kwargs=dict(call.kwargs))
    if told := other_setting(site.node, meant):
        return f"'{name}' is computed {told}"
    pairs = [(one, other) for one, other in zip(site.node.args, meant.args, strict=False) if one != other]
    if len(site.node.args) != len(meant.args) or len(pairs) != 1:
        return ""
    one, other = pairs[0]
    if isinstance(one, Var | tuple | str) or isinstance(other, Var | tuple | str) or one is None or other is None:
        return ""
    return f"'{name}' is computed with {one!r}, which is {other!r} in the specification"


def _another_tensor(edit: Edit, name: str, site: Site, capture: Capture, named: Named) -> str:
    """A tensor that is read in the place of another one, on every rank or on some."""
    meant: object = ""
    if isinstance(edit, Reread):
        meant = edit.tensors[min(edit.tensors)]
    elif isinstance(edit, SetArgument):
        ranks = misreading(edit, capture)
        meant = edit.values[ranks[0] if ranks else min(edit.values)]
        if ranks:
            return misread_text(ranks, name, named(ranks[0], meant) if isinstance(meant, Var) else "")
    text = named(min(site.position), meant) if isinstance(meant, Var) else ""
    unread = f": '{text}' is meant, which nothing reads" if text and text != name else ""
    return f"'{name}' is computed from another tensor than in the specification{unread}"


def _term(tensors: Tensors, call: Call, named: Named) -> str:
    """What the author calls the other of two tensors that are to be added."""
    rank = min(tensors)
    others = (arg for arg in call.args[rank] if isinstance(arg, Var) and arg != tensors[rank])
    return next((named(rank, other) for other in others), "")


def _factor_of(call: Call, digits: int = 6) -> str | None:
    """``divided by 4``, ``multiplied by 2`` for a call that scales by a number, which is told to so many digits."""
    numbers = [arg for arg in next(iter(call.args.values()), ()) if isinstance(arg, int | float)]
    if call.op not in SCALING or len(numbers) != 1:
        return None
    return f"{'divided' if '.div' in call.op else 'multiplied'} by {numbers[0]:.{digits}g}"


def _unmasked(name: str, mask: str, fill: float) -> str:
    what = f"'{mask}'" if mask else "the mask"
    if fill:
        return f"'{name}' is not masked by {what}, which nothing reads; the specification masks here"
    return f"'{name}' keeps what rows of other ranks look up: where {what} holds it must be 0, so that the sum over the ranks is right"


def listed(names: Sequence[str], most: int = 6) -> str:
    """``'a', 'b' and 'c'``, or ``'a', 'b' and 7 more`` where there are too many."""
    shown = [f"'{name}'" for name in names[:most]]
    if len(names) > most:
        return f"{', '.join(shown)} and {len(names) - most} more"
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


def asked_for(name: str, text: str) -> str:
    """A sentence about the value of ``loss.backward()`` as one about what that call computes: gradients have no names of their own there."""
    quoted = f"'{name}'"
    if re.search(r"\bbackward\(.*\)$", name) is None or not text.startswith(f"{quoted} "):
        return text
    return f"a gradient that {quoted} computes{text.removeprefix(quoted)}"


def gradients_unreduced(names: Sequence[str], axis: str, averaged: bool = False) -> str:
    """That gradients, by the names of what they are of, are summands on the ranks, or to be ``averaged``, and stay so."""
    if len(names) > 1 and averaged:
        return f"the gradients of {listed(names)} are each rank's own over axis '{axis}': they are not averaged"
    if len(names) > 1:
        return f"the gradients of {listed(names)} are partial sums over axis '{axis}': they are not reduced"
    if re.fullmatch(r"out(\[.*\])?", names[0]):
        return f"'{names[0]}' is a gradient that is a partial sum over axis '{axis}': it is not reduced"
    what = names[0] if names[0].startswith("an operand of ") else f"'{names[0]}'"
    return f"the gradient of {what} is a partial sum over axis '{axis}': it is not reduced"


def _gradient(name: str, axis: str, averaged: bool) -> str:
    names = name.split(", ") if re.fullmatch(r"[\w.]+(, [\w.]+)+", name) else [name]
    return gradients_unreduced(names, axis, averaged)


def _superfluous(rule: str, name: str, site: Site, capture: Capture, count: str) -> str:
    """A node that should not be there: a rounding, a factor, a reduction."""
    node, rank = site.node, min(site.position)
    if rule == "lower-precision":
        return rounding_text(name, node, capture.ranks[rank].types)
    number = node.args[1] if len(node.args) > 1 else None
    if isinstance(number, int | float) and number == 0 and node.op in SCALING:
        return f"'{name}' is multiplied by 0: it leaves out what the specification counts"
    if rule == "wrong-relation":
        return f"'{name}' is {_result_of(node.op)}, which the specification does not compute here"
    if rule == "wrong-scale":
        if node.op == "aten.add.Tensor":
            return f"'{name}' is added to itself: it is 2 times what the specification computes"
        factor = Fraction(number).limit_denominator(1 << 20) if isinstance(number, int | float) else Fraction(1)
        how = "divided" if ".div" in node.op else "multiplied"
        return f"'{name}' is {how} by {factor_text(factor, capture, count=count)}, which the specification does not do"
    reduce, group = str(node.args[1]), node.args[2]
    times = f": it becomes {factor_text(_size(group), capture)} times too large" if reduce == "sum" else ""
    verb = _VERBS.get(reduce, "reduced")
    return f"'{name}' is {verb} over {_group_text(group, capture)} although every rank already holds the whole value{times}"


def _added_early(edit: AddAfterReduction | BiasAfterReduction, capture: Capture, named: Named) -> str:
    rank = min(edit.reduction)
    graph = capture.ranks[rank]
    group = graph.nodes[edit.reduction[rank]].args[2]
    if isinstance(edit, AddAfterReduction):
        term = graph.nodes[edit.addition[rank]].args[edit.moved]
    else:
        term = graph.nodes[edit.product[rank]].args[0]
    name = named(rank, term) if isinstance(term, Var) else str(term)
    what = f"'{name}'" if name else "a term"
    times = factor_text(_size(group), capture, axis_of_group(group, capture))
    return f"{what} is added on every rank before the sum over {_group_text(group, capture)}, which counts it {times} times"


def _wrong_argument(edit: SetArgument, name: str, site: Site, capture: Capture) -> str:
    """A collective, or the joining of what it gathered, with one argument that is wrong."""
    wanted = next(iter(edit.values.values()))
    if edit.what == "order" and site.node.op == "gg.all_to_all":
        return f"the parts that are exchanged for '{name}' are not sent in rank order"
    if edit.what == "order":
        return f"the gathered parts in '{name}' are not joined in rank order"
    if edit.what == "parts":
        return f"'{name}' joins its parts in another order than the specification"
    if edit.what == "dim":
        now = site.node.args[1] if len(site.node.args) > 1 else 0
        return f"the gathered parts in '{name}' are joined along dim {now}; dim {wanted} is needed"
    if edit.what == "src":
        return f"'{name}' is sent by rank {site.node.args[1]}; what the specification computes is on rank {wanted}"
    if edit.what == "row":
        return _untranslated(edit, name, site)
    group = site.node.args[1 if site.node.op == "gg.all_gather" else 2]
    if edit.what != "reduce":
        verb = "gathered" if site.node.op == "gg.all_gather" else "reduced"
        return f"'{name}' is {verb} over {_group_text(group, capture)} instead of axis '{edit.what}'"
    size, axis = _size(group), axis_of_group(group, capture)
    if (other := _OTHER_REDUCTIONS.get(str(site.node.args[1]))) is not None:
        need = _OTHER_REDUCTIONS.get(str(wanted)) or ("mean" if wanted == "avg" else "sum")
        return f"'{name}' is the {other} over {_group_text(group, capture)} where the {need} is needed"
    if wanted == "max":
        return f"'{name}' is the sum over {_group_text(group, capture)} of each rank's largest: the largest of all is needed"
    if wanted == "avg":
        return f"'{name}' is summed where the mean is needed: it is {factor_text(size, capture, axis)} times too large"
    return f"'{name}' is averaged where the sum is needed: it is {factor_text(1 / size, capture, axis)} of what it should be"


def _untranslated(edit: SetArgument, name: str, site: Site) -> str:
    """A row that is not the one that is meant in a rank's part of a table."""
    now = site.node.args[edit.index]
    rank = next(rank for rank, row in sorted(edit.values.items()) if row != now)
    needed = f"row {edit.values[rank]}" if edit.values[rank] != -1 else "none, for another rank has that row"
    return f"'{name}' names row {now} of its own part of the table: rank {rank} needs {needed}"


def _wrong_part(
    edit: MoveDiagonal | MoveSlice | OtherPart | Shift, name: str, site: Site, capture: Capture, named: Named
) -> str:
    """A rank works on another part than its own: which it reads, and which it needs."""
    if isinstance(edit, MoveDiagonal):
        return unmoved(edit, name)
    if isinstance(edit, Shift):
        rank, offset = max(edit.offsets.items(), key=lambda item: item[1])
        length = offset // max(1, capture.coordinates(rank)[edit.axis])
        now, needed = _span_text(0, length), _span_text(offset, length)
        return f"'{name}' starts at 0 on every rank: rank {rank} has {now}, needs {needed} along axis '{edit.axis}'"
    now_by_rank = read_parts(site, capture)
    needed_by_rank = needed_parts(edit, site, capture)
    whole = next((text for rank in site.position if (text := _operand_name(site, rank, capture, named))), "")
    what = f"'{name}' is the wrong part of '{whole}'" if whole and whole not in name else f"'{name}' is the wrong part"
    for rank in sorted(now_by_rank):
        read, wanted = now_by_rank[rank], needed_by_rank.get(rank)
        if wanted is not None and read != wanted:
            return f"{what}: rank {rank} reads {_part_text(read)}, needs {_part_text(wanted)} along axis '{edit.axis}'"
    return f"{what}: each rank needs its own along axis '{edit.axis}'"


def _wrong_place(edit: OwnPlace, name: str, capture: Capture) -> str:
    """Numbers that come from another rank than the one of the axis."""
    what = f"'{name}' goes by the rank in the whole world"
    if (found := differing_number(capture, edit)) is None:
        ranks = f"rank {min(edit.position)} alone" if len(edit.position) == 1 else "some ranks alone"
        told = f"'{name}' is computed on {ranks}" if len(edit.position) < capture.world_size else f"'{name}'"
        return f"{told}, which goes by the rank in the whole world: the place along axis '{edit.axis}' is meant"
    rank, mine, meant = found
    return f"{what}: rank {rank} has {mine}, needs {meant} by its place along axis '{edit.axis}'"


def _operand_name(site: Site, rank: int, capture: Capture, named: Named) -> str:
    var = next(capture.ranks[rank].nodes[site.position[rank]].operands(), None)
    return "" if var is None else named(rank, var)


def _part_text(part: Part) -> str:
    """``rows 0..3``, ``row 3``, ``rows 1, 3, 5``, ``dim 1, 0..3``."""
    if part.step > 1:
        places = [str(part.start + part.step * each) for each in range(part.length)]
        text = ", ".join(places if len(places) <= 4 else [*places[:3], "...", places[-1]])
    else:
        text = _span_text(part.start, part.length)
    if part.dim:
        return f"{text} of dim {part.dim}"
    return f"{'row' if part.length == 1 else 'rows'} {text}"


def _span_text(start: int, length: object) -> str:
    """``4..7``, or ``4`` alone; ``4..`` where the length is not known."""
    if not isinstance(length, int):
        return f"{start}.."
    return str(start) if length == 1 else f"{start}..{start + length - 1}"


def spoiled_text(promises: Mapping[str, object] | tuple[str, ...], most: int = 4) -> str:
    """The outputs that a defect spoils, with the verb: ``out is wrong``, ``out[0], out[1] are wrong``."""
    names = list(promises)
    shown = ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
    return f"{shown} {'is' if len(names) == 1 else 'are'} wrong"
