"""How many groups a tensor is told apart in, as text: a count, or what is in a group, that a place of the source says or hands on."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fractions import Fraction

from graphguard.ir import Capture, Span
from graphguard.repair.graph.meanings import Regrouping
from graphguard.repair.text.program import METHODS, Program
from graphguard.repair.text.vocabulary import size_expressions
from graphguard.repair.writing.source import Draft
from graphguard.report.diagnostics import TextEdit

_SIMPLE = ast.Name | ast.Attribute | ast.Constant | ast.Subscript | ast.Call


def other_groups(program: Program, span: Span, regrouping: Regrouping, capture: Capture) -> Iterator[Draft]:
    """A count in the call at a place times, or divided by, the size of the axis: as one of groups, then as one of what is in a group."""
    value = program.expression(span)
    if not isinstance(value, ast.Call):
        return
    size = max(regrouping.times, 1 / regrouping.times)
    named = size_expressions(program, value, size, capture)[:1]
    counts = [node for node in _counts(value) if not _is_sign(node)]
    for fewer in (regrouping.times < 1, regrouping.times > 1):
        for node in counts:
            ways = [*named, *_of_number(node, size, fewer)] or [
                str(size)
            ]  # one that asks for the size serves other meshes too
            yield from (_scaled(program, node, name, fewer) for name in ways)


def _counts(call: ast.Call) -> Iterator[ast.expr]:
    """What a call may be given as a number, the divisor of a quotient before the quotient itself."""
    method = isinstance(call.func, ast.Attribute) and call.func.attr in METHODS
    for given in (*call.args, *(word.value for word in call.keywords)):
        first = given is call.args[0] if call.args else False
        if first and not method:
            continue  # the tensor
        match given:
            case ast.BinOp(op=ast.FloorDiv(), right=right):
                yield right
                yield given
            case ast.Name() | ast.Attribute() | ast.Constant(value=int()) | ast.BinOp():
                yield given


def _is_sign(node: ast.expr) -> bool:
    """Whether a number is left open, or is none."""
    return isinstance(node, ast.UnaryOp) or (isinstance(node, ast.Constant) and isinstance(node.value, bool))


def _of_number(node: ast.expr, size: Fraction, fewer: bool) -> list[str]:
    """A literal's other value, where it has one."""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, int):
        return []
    found = Fraction(node.value) / size if fewer else node.value * size
    return [f"={found}"] if found.denominator == 1 else []


def _scaled(program: Program, node: ast.expr, name: str, fewer: bool) -> Draft:
    text = program.source(node)
    if name.startswith("="):
        new = name.removeprefix("=")
    else:
        bare = text if isinstance(node, _SIMPLE) else f"({text})"
        new = f"{bare} {'//' if fewer else '*'} {name}"
        outer = program.parents.get(node)
        new = f"({new})" if isinstance(outer, ast.BinOp) else new
    return Draft(f"write {new} for {text}", (TextEdit(program.span(node), new),), program.span(node))
