"""What a finding says, in the words of the code it is about."""

from __future__ import annotations

from fractions import Fraction

from graphguard.ir import Capture
from graphguard.repair.edits import (
    AddAfterReduction,
    Bypass,
    Edit,
    InsertGather,
    InsertReduction,
    Scale,
    SetArgument,
    Tensors,
)


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


def factor_text(factor: Fraction, capture: Capture) -> str:
    """A factor in terms of mesh axes where it is one of their sizes: ``2 (the size of axis 'dp')``."""
    for size, shown in ((factor, "{}"), (1 / factor, "1/{}")):
        for axis, extent in capture.mesh.items():
            if size == extent and extent > 1:
                return f"{shown.format(extent)} ({shown.format(axis)}: the size of axis '{axis}')"
    return str(factor)


def headline(rule: str, edit: Edit, name: str, capture: Capture) -> str:
    """One line that stands alone: which value, what is wrong with it."""
    match edit:
        case InsertReduction(axis=axis) if rule == "gradient-not-reduced":
            return f"the gradient of '{name}' is a partial sum over axis '{axis}': it is not reduced"
        case InsertReduction(axis=axis):
            return f"'{name}' is a partial sum over axis '{axis}' and is used as if it were whole"
        case InsertGather(axis=axis, dim=dim):
            return f"'{name}' is sharded on dim {dim} over axis '{axis}' and is used as if it were whole"
        case Bypass() if rule == "lower-precision":
            return f"'{name}' is narrowed, which the specification does not do at this value"
        case Bypass():
            return f"'{name}' is reduced although every rank already holds the whole value"
        case Scale(factor=factor):
            return f"'{name}' is {factor_text(1 / factor, capture)} times what the specification computes"
        case SetArgument(what="reduce"):
            return f"'{name}' is reduced with the wrong operation: a sum where a mean is needed, or the reverse"
        case SetArgument(what=what) if rule == "wrong-group":
            return f"'{name}' is reduced over the wrong group: axis '{what}' is needed"
        case SetArgument(values=values):
            return f"'{name}' is the wrong slice: {_starts(values)}"
        case AddAfterReduction():
            return f"'{name}' is added on every rank before the reduction, which counts it once per rank"


def _starts(values: dict[int, object]) -> str:
    return ", ".join(f"rank {rank} must start at {value}" for rank, value in sorted(values.items())[:4])
