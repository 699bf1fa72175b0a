"""What a finding says, in the words of the code it is about."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from graphguard.ir import Capture, Placement, Var
from graphguard.ops import aten, gg
from graphguard.relations.relation import placed
from graphguard.repair.findings.guided_words import guided_text
from graphguard.repair.findings.part_words import untranslated_text, wrong_part_text, wrong_place_text
from graphguard.repair.graph.edits import (
    Accumulate,
    AddAfterReduction,
    Bypass,
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
)
from graphguard.repair.graph.neighbours import SCALING
from graphguard.repair.graph.slices import Site
from graphguard.repair.writing.widening import rounding_text
from graphguard.repair.writing.words import (
    Named,
    axis_of_group,
    factor_text,
    group_size,
    group_text,
    listed,
    operation,
    result_of,
)

SHORT = 24
_VERBS = {"sum": "summed", "avg": "averaged"}
_OTHER_REDUCTIONS = {"max": "maximum", "min": "minimum", "product": "product"}
_OWN = {"max": "the maximum of each rank's own part", "avg": "the mean of each rank's own part"}


def needed_and_found(name: str, site: Site, axis: str) -> tuple[str, str]:
    """How a partial sum should be laid out, and how it is: ``y: Shard(0) over dp``, ``y: Partial(sum) over tp, Shard(0) over dp``.

    An expression that is too long to be repeated is not.
    """
    said = f"{name}: " if re.fullmatch(r"[\w.()]+", name) and len(name) <= SHORT else ""
    known = {} if site.relation is None else site.relation.placements or {}
    others = {other: place for other, place in known.items() if other != axis and place.kind != "replicate"}
    return said + placed(others), said + placed({axis: Placement("partial"), **others})


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
            times = factor_text(1 / factor, capture, count=count, is_sure=False)
            return f"{what} is {times} times what the specification computes"
        case Bypass():
            return _superfluous(rule, name, site, capture, count)
        case AddAfterReduction():
            return _added_early(edit, capture, named)
        case MoveDiagonal() | MoveSlice() | OtherPart() | Shift():
            return wrong_part_text(edit, name, site, capture, named)
        case ReduceToAll():
            node = site.node
            return f"'{name}' is whole on rank {node.args[1]} only: {operation(node.op)} leaves every other rank its own summand"
        case (
            SetArgument(what="operand") | InsertCall() | ChangeCall() | SwapTensors() | Reread() | Accumulate() | Mask()
        ):
            return guided_text(edit, name, site, capture, named)
        case SetArgument():
            return _wrong_argument(edit, name, site, capture)
        case OwnPlace() | OtherCalls():
            return _by_rank(edit, name, capture)


def _by_rank(edit: OwnPlace | OtherCalls, name: str, capture: Capture) -> str:
    """What is another thing from rank to rank."""
    return wrong_place_text(edit, name, capture) if isinstance(edit, OwnPlace) else edit.told.replace("{name}", name)


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


def is_asking(name: str) -> bool:
    """Whether a name is that of a call such as ``loss.backward()``."""
    return re.search(r"\bbackward\(.*\)$", name) is not None


def asked_for(name: str, text: str) -> str:
    """A sentence about the value of ``loss.backward()`` as one about what that call computes: gradients have no names of their own there."""
    quoted = f"'{name}'"
    if not is_asking(name) or not text.startswith(f"{quoted} "):
        return text
    return f"a gradient that {quoted} computes{text.removeprefix(quoted)}"


def unreduced_gradient(edit: object, name: str) -> str:
    """That the gradient of this name, which the author's code computes, is not reduced."""
    assert isinstance(edit, InsertReduction)
    return _is_gradient(name, held_before(edit), edit.axis)


def _is_gradient(name: str, held: str, axis: str) -> str:
    return f"'{name}' is a gradient that is {held} over axis '{axis}': it is not reduced"


def gradients_unreduced(names: Sequence[str], axis: str, averaged: bool = False) -> str:
    """That gradients, by the names of what they are of, are summands on the ranks, or to be ``averaged``, and stay so."""
    handed_out = all(re.fullmatch(r"out(\[.*\])?|[\w.]+\.grad", name) for name in names)
    if len(names) > 1 and handed_out and not averaged:
        return f"{listed(names)} are gradients that are partial sums over axis '{axis}': they are not reduced"
    if len(names) > 1 and averaged:
        return f"the gradients of {listed(names)} are each rank's own over axis '{axis}': they are not averaged"
    if len(names) > 1:
        return f"the gradients of {listed(names)} are partial sums over axis '{axis}': they are not reduced"
    if handed_out:
        return _is_gradient(names[0], "a partial sum", axis)
    what = names[0] if names[0].startswith("an operand of ") else f"'{names[0]}'"
    return f"the gradient of {what} is a partial sum over axis '{axis}': it is not reduced"


def _gradient(name: str, axis: str, averaged: bool) -> str:
    one = r"(?:[\w.]+|out\[[^,\]]+\])"
    names = name.split(", ") if re.fullmatch(rf"{one}(, {one})+", name) else [name]
    return gradients_unreduced(names, axis, averaged)


HELD: Final = "already holds the whole value"
"""What a superfluous reduction reduces."""


def _superfluous(rule: str, name: str, site: Site, capture: Capture, count: str) -> str:
    """A node that should not be there: a rounding, a factor, a reduction."""
    node, rank = site.node, min(site.position)
    if rule == "lower-precision":
        return rounding_text(name, node, capture.ranks[rank].types)
    number = node.args[1] if len(node.args) > 1 else None
    if isinstance(number, int | float) and number == 0 and node.op in SCALING:
        return f"'{name}' is multiplied by 0: it leaves out what the specification counts"
    if rule == "wrong-relation":
        return f"'{name}' is {result_of(node.op)}, which the specification does not compute here"
    if rule == "wrong-scale":
        if node.op == aten.add.Tensor:
            return f"'{name}' is added to itself: it is 2 times what the specification computes"
        factor = Fraction(number).limit_denominator(1 << 20) if isinstance(number, int | float) else Fraction(1)
        how = "divided" if ".div" in node.op else "multiplied"
        return f"'{name}' is {how} by {factor_text(factor, capture, count=count)}, which the specification does not do"
    reduce, group = str(node.args[1]), node.args[2]
    times = f": it becomes {factor_text(group_size(group), capture)} times too large" if reduce == "sum" else ""
    verb = _VERBS.get(reduce, "reduced")
    return f"'{name}' is {verb} over {group_text(group, capture)} although every rank {HELD}{times}"


def _added_early(edit: AddAfterReduction, capture: Capture, named: Named) -> str:
    rank = min(edit.reduction)
    graph = capture.ranks[rank]
    group = graph.nodes[edit.reduction[rank]].args[2]
    term = graph.nodes[edit.addition[rank]].args[edit.moved]
    name = named(rank, term) if isinstance(term, Var) else str(term)
    what = f"'{name}'" if name else "a term"
    times = factor_text(group_size(group), capture, axis_of_group(group, capture))
    return (
        f"{what} is added on every rank before the sum over {group_text(group, capture)}, which counts it {times} times"
    )


def _wrong_argument(edit: SetArgument, name: str, site: Site, capture: Capture) -> str:
    """A collective, or the joining of what it gathered, with one argument that is wrong."""
    wanted = next(iter(edit.values.values()))
    if edit.what == "order" and site.node.op == gg.all_to_all:
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
        return untranslated_text(edit, name, site)
    group = site.node.args[1 if site.node.op == gg.all_gather else 2]
    if edit.what != "reduce":
        verb = "gathered" if site.node.op == gg.all_gather else "reduced"
        return f"'{name}' is {verb} over {group_text(group, capture)} instead of axis '{edit.what}'"
    size, axis = group_size(group), axis_of_group(group, capture)
    if (other := _OTHER_REDUCTIONS.get(str(site.node.args[1]))) is not None:
        need = _OTHER_REDUCTIONS.get(str(wanted)) or ("mean" if wanted == "avg" else "sum")
        return f"'{name}' is the {other} over {group_text(group, capture)} where the {need} is needed"
    if wanted == "max":
        return f"'{name}' is the sum over {group_text(group, capture)} of each rank's largest: the largest of all is needed"
    if wanted == "avg":
        return f"'{name}' is summed where the mean is needed: it is {factor_text(size, capture, axis)} times too large"
    return f"'{name}' is averaged where the sum is needed: it is {factor_text(1 / size, capture, axis)} of what it should be"
