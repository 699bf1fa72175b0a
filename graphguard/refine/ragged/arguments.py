"""Arguments of calls on rows whose number the data decides."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TypeAlias

from graphguard.ir import Node, Var
from graphguard.ir.graph import Arg
from graphguard.refine.ragged.orders import Rows
from graphguard.refine.ragged.program import Ragged
from graphguard.relations.algebra import Unsupported
from graphguard.relations.terms.values import NormalValue

Results: TypeAlias = "list[Rows | NormalValue] | None"
Move: TypeAlias = "Callable[[Ragged, Node], Results]"


def argument(node: Node, position: int, name: str, default: Arg = None) -> Arg:
    """An argument by position or by name."""
    return node.args[position] if position < len(node.args) else node.kwargs.get(name, default)


def along(program: Ragged, var: Arg, dim: Arg) -> int:
    """A dim of a tensor, counted from the first."""
    assert isinstance(var, Var)
    assert isinstance(dim, int)
    return dim + len(program.graph.types[var].shape) if dim < 0 else dim


def rows_known(program: Ragged, var: Arg) -> Rows | None:
    """A tensor's rows, if it has any whose number the data decides."""
    return program.rows.get(var) if isinstance(var, Var) else None


def line_of(program: Ragged, var: Arg) -> Rows:
    """A tensor of one dim."""
    assert isinstance(var, Var)
    if len(program.graph.types[var].shape) != 1:
        raise Unsupported("an order of more than one line")
    return program.rows_of(var)


def less(program: Ragged, a: NormalValue, b: NormalValue) -> NormalValue:
    """a - b"""
    return program.algebra.add([a, program.algebra.scale(b, Fraction(-1))])
