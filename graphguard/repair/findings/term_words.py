"""A sum whose terms count otherwise than in the specification, each term by what the specification calls it."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

import numpy as np

from graphguard.ir import Graph, Node, Var
from graphguard.ops import aten
from graphguard.repair.graph.leaves import leaf_behind
from graphguard.repair.text.frames import Sources
from graphguard.repair.trying.search import Search
from graphguard.repair.writing.words import factor_text, in_a_row, listed, operation

_MOST: Final = 6  # terms that are told apart
_ADDING: Final = frozenset({aten.add.Tensor})
_NEAR: Final = 1e-7


def terms_text(what: str, own: Var, meant: Var, found: Search, sources: Sources) -> str:
    """How often a tensor of the first rank counts every term of a sum of the specification; empty where numbers do not say it."""
    capture, refuter = found.capture, found.trials.refuter
    spec = capture.spec
    terms = [] if spec is None else _terms(spec, meant)
    if spec is None or refuter is None or not 1 < len(terms) <= _MOST:
        return ""
    point = refuter.point
    held = [point.spec[var].array for var in terms if var in point.spec]
    mine = point.ranks[0].get(own)
    if mine is None or len(held) < len(terms) or any(each.shape != mine.array.shape for each in held):
        return ""
    columns = np.stack([each.reshape(-1) for each in held], axis=1)
    row = mine.array.reshape(-1)
    factors, _, rank, _ = np.linalg.lstsq(columns, row, rcond=None)
    if rank < len(terms) or not np.allclose(columns @ factors, row, rtol=_NEAR, atol=_NEAR):
        return ""
    exact = [Fraction(float(factor)).limit_denominator(1 << 10) for factor in factors]
    if not all(np.isclose(float(one), float(factor)) for one, factor in zip(exact, factors, strict=True)):
        return ""
    names = [_name(spec, var, sources) for var in terms]
    wrong = [
        f"{name} {factor_text(factor, capture)} times" for name, factor in zip(names, exact, strict=True) if factor != 1
    ]
    if not wrong or len(set(names)) < len(names):
        return ""
    return (
        f"'{what}' counts {in_a_row(wrong)}, where the specification counts {'it' if len(wrong) == 1 else 'each'} once"
    )


def _terms(spec: Graph, meant: Var) -> list[Var]:
    """The terms of a sum, through sums of sums."""
    producers = spec.producers()
    found: list[Var] = []
    waiting = [meant]
    while waiting and len(found) <= _MOST:
        var = waiting.pop(0)
        index = producers.get(var)
        node = None if index is None else spec.nodes[index]
        operands = [] if node is None else [each for each in node.args[:2] if isinstance(each, Var)]
        if node is not None and node.op in _ADDING and len(operands) == 2 and not node.kwargs:
            waiting += operands
        elif var not in spec.constants:
            found.append(var)
    return found


def _name(spec: Graph, var: Var, sources: Sources) -> str:
    """A term by its expression, or as what comes back through one; and of what it is, where several expressions are alike."""
    index = spec.producers().get(var)
    if index is None:
        return f"'{spec.inputs.get(var, '')}'"
    node = spec.nodes[index]
    if node.phase == "backward":
        return _gradient(spec, node, sources)
    name = sources.name_at(sources.name_place(spec, node)) or operation(node.op)
    leaf = leaf_behind(spec, var)
    return f"'{name}'" + (f" of {listed([leaf])}" if leaf else "")


def _gradient(spec: Graph, node: Node, sources: Sources) -> str:
    place = sources.forward_call(spec, node)
    name = sources.name_at(place) if place is not None else ""
    line = f" (line {place.line} of the specification)" if place is not None else ""
    return f"what comes back through '{name}'{line}" if name else f"a gradient by {operation(node.op)}"
