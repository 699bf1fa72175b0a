"""What several findings of one defect have in common: those are told as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from graphguard.ir import Capture, Span
from graphguard.ops import REDUCTIONS
from graphguard.refine.finding import Finding
from graphguard.repair.backward.stopped import is_gradient
from graphguard.repair.graph.edits import (
    Bypass,
    ChangeCall,
    InsertCall,
    InsertReduction,
    MoveReduction,
    Scale,
    SetArgument,
)
from graphguard.repair.trying.trials import Repair
from graphguard.repair.writing.words import axis_of_group

EVERYTHING = "everything by"
_MANIFOLD = frozenset({"wrong-scale", "wrong-shard"})


def common_factor(broken: Sequence[str], ratios: Mapping[str, float]) -> Fraction | None:
    """The factor by which all that is broken is wrong; None where it is not one."""
    factors = {Fraction(ratios.get(name) or 0).limit_denominator(1 << 10) for name in broken}
    return next(iter(factors)) if len(factors) == 1 and factors.isdisjoint({0, 1}) else None


def alike(capture: Capture, repair: Repair, finding: Finding, factor: Fraction | None, is_step: bool) -> str:
    """A name that the findings of one defect share; empty for a finding that stands alone.

    That is the common ``factor`` of all that is broken, or of gradients; an operator that is taken out here and put in there on the way to one promise (``is_step``);
    the reduction that several collectives should make on the way to one promise; the axis over which the operands of one line are summed too late or too often, on the way to one promise; a line whose calls have other numbers, on the way to one promise; or the line on which parts are wrong in the same way.
    """
    edit = repair.hypothesis.edit
    if finding.rule == "wrong-scale" and factor is not None:
        return f"{EVERYTHING} {factor}"
    if is_step and isinstance(edit, InsertCall | Bypass):
        op = edit.call.op if isinstance(edit, InsertCall) else repair.hypothesis.site.node.op
        return f"{op} moved: {', '.join(repair.mends)}"
    if is_step and finding.span is not None and (axis := _summed_over(capture, repair)):
        return f"summed over {axis} for {', '.join(repair.mends)} at {finding.span.file}:{finding.span.line}"
    if (
        is_step
        and finding.span is not None
        and isinstance(edit, ChangeCall)
        and edit.call.op == repair.hypothesis.site.node.op
    ):
        return f"called otherwise for {', '.join(repair.mends)} at {finding.span.file}:{finding.span.line}"
    if is_step and isinstance(edit, SetArgument) and edit.what == "reduce":
        return f"reduced with {edit.values[min(edit.values)]} for {', '.join(repair.mends)}"
    if finding.rule == "wrong-scale" and all(is_gradient(capture, name) for name in repair.mends):
        scaled = _factor(edit)
        if scaled is not None:
            return f"gradients by {scaled}"
    if finding.rule not in _MANIFOLD or finding.span is None:
        return ""
    return f"{finding.rule} {type(edit).__name__} {finding.span.file}:{finding.span.line}"


def at_one_place(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, with one name for those that stand at the same expression: it is there that all of them are to be mended, whatever each lacks."""
    names: dict[Span, str] = {}
    same: dict[str, str] = {}
    found: list[Finding] = []
    for each in findings:
        if each.span is not None and not each.alike.startswith(EVERYTHING):
            name = same.get(each.alike) or names.get(each.span) or each.alike or f"at {each.span}"
            names.setdefault(each.span, name)
            if each.alike:
                same[each.alike] = name
            each = replace(each, alike=name)
        found.append(each)
    return found


def _summed_over(capture: Capture, repair: Repair) -> str:
    """The axis over which an edit reduces, or no longer does."""
    match repair.hypothesis.edit:
        case InsertReduction(axis=axis) | MoveReduction(axis=axis):
            return axis
        case Bypass() if repair.hypothesis.site.node.op in REDUCTIONS:
            return axis_of_group(repair.hypothesis.site.node.args[-1], capture)
    return ""


def _factor(edit: object) -> Fraction | None:
    """What an edit multiplies by."""
    match edit:
        case Scale(factor=factor):
            return factor
        case SetArgument(what="reduce", position=position, values=values):
            size = len(position)
            return Fraction(1, size) if values[min(values)] == "avg" else Fraction(size)
    return None
