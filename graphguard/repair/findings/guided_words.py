"""What is said of a repair that the specification suggested, or the ranks' own programs."""

from __future__ import annotations

from dataclasses import replace

from graphguard.ir import Capture, Var
from graphguard.ops import aten, traits_of
from graphguard.repair.graph.edits import (
    Accumulate,
    Call,
    ChangeCall,
    Edit,
    InsertCall,
    Mask,
    Reread,
    SetArgument,
    SwapTensors,
    Tensors,
)
from graphguard.repair.graph.neighbours import SCALING
from graphguard.repair.graph.slices import Site
from graphguard.repair.shards.masks import BOUNDS
from graphguard.repair.shards.unlike import misread_text, misreading
from graphguard.repair.text.settings import other_setting
from graphguard.repair.writing.words import Named, operation


def guided_text(edit: Edit, name: str, site: Site, capture: Capture, named: Named) -> str:
    """A repair that the specification suggested, or the ranks' own programs."""
    match edit:
        case Accumulate(_, earlier):
            count = len(next(iter(earlier.values())))
            passes = "the pass" if count == 1 else f"the {count} passes"
            return f"'{name}' keeps what the last pass of the loop gives: that of {passes} before it is dropped instead of added"
        case Mask(masks=masks):
            return _unmasked(name, named(min(masks), masks[min(masks)]))
        case InsertCall(call=call) if (factor := _factor_of(call)) is not None:
            return f"'{name}' is not {factor}, as in the specification"
        case InsertCall(tensors, call) if call.op == aten.add.Tensor and (term := _term(tensors, call, named)):
            if term == name:
                return f"two values of '{name}' are not added to each other, as they are in the specification"
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
            now, wanted = (traits_of(op).symbol for op in (site.node.op, call.op))
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
    rank = min(site.position)
    text = named(rank, meant) if isinstance(meant, Var) else ""
    told = f"'{name}' is computed from another tensor than in the specification"
    if not text or text == name:
        return told
    if not any(meant in node.reads for node in capture.ranks[rank].nodes):
        return f"{told}: '{text}' is meant, which nothing reads"
    read = site.node.args[edit.index] if isinstance(edit, SetArgument) else None
    mine = named(rank, read) if isinstance(read, Var) else ""
    if mine == text:
        return f"{told}: another value of '{text}' is meant"
    return f"'{name}' is computed from '{mine}' where '{text}' is meant" if mine else f"{told}: '{text}' is meant"


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


def _unmasked(name: str, mask: str) -> str:
    what = f"'{mask}'" if mask else "the mask"
    return f"'{name}' keeps what rows of other ranks look up: where {what} holds it must be 0, so that the sum over the ranks is right"
