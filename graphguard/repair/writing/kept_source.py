"""Numbers that a module keeps as an attribute, such as the scale of its attention: mended where they are made, by a number of ranks that counts too much or is missing there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fractions import Fraction

from graphguard.ir import Capture, Span
from graphguard.repair.text.program import MODULES, Program
from graphguard.repair.text.vocabulary import size_expressions
from graphguard.repair.writing.source import Draft
from graphguard.report.diagnostics import TextEdit


def of_kept_numbers(program: Program, span: Span, capture: Capture) -> Iterator[Draft]:
    """Each number that is made of others in a method and read as an attribute of ``self`` at a place, with one of these times or over a number of ranks."""
    value = program.expression(span)
    for name in _kept(value) if value is not None else ():
        for made in _made(program, value, name):
            sizes = [size for size in dict.fromkeys(capture.mesh.values()) if size > 1]
            ranks = [text for size in sizes for text in size_expressions(program, made, Fraction(size), capture)]
            for part in _parts(made):
                for text in dict.fromkeys(ranks):
                    yield from _scaled(program, name, made, part, text)


def _kept(value: ast.expr | None) -> list[str]:
    """The attributes of ``self`` that an expression reads and does not call."""
    nodes = list(ast.walk(value)) if value is not None else []
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    return [
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
        if id(node) not in called
    ]


def _made(program: Program, at: ast.expr | None, name: str) -> Iterator[ast.expr]:
    """What the class around a place assigns to an attribute."""
    outer = next((each for each in program.ancestors(at) if isinstance(each, ast.ClassDef)), None) if at else None
    for node in ast.walk(outer) if outer is not None else ():
        match node:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=attr)], value=value) if attr == name:
                yield value


def _parts(made: ast.expr) -> list[ast.expr]:
    """The names and attributes that a number is made of, outermost first."""
    parts: list[ast.expr] = []
    match made:
        case ast.BinOp(left=left, right=right):
            parts = [*_parts(left), *_parts(right)]
        case ast.UnaryOp(operand=operand):
            parts = _parts(operand)
        case ast.Call(args=args):
            parts = [part for arg in args for part in _parts(arg)]
        case ast.Name(id=name) if name not in MODULES:
            parts = [made]
        case ast.Attribute():
            parts = [made]
    return parts


def _scaled(program: Program, name: str, made: ast.expr, part: ast.expr, ranks: str) -> Iterator[Draft]:
    whole, start, end = program.source(made), program.span(made), program.span(part)
    if start.line != end.line or end.line != end.end_line or ranks == program.source(part):
        return
    first, last = end.column - start.column, end.end_column - start.column
    for operator in ("/" if _is_quotient(made) else "//", "*"):
        times = f"{program.source(part)} {operator} {ranks}"
        text = f"{whole[:first]}{times if _stands_first(program, part, made) else f'({times})'}{whole[last:]}"
        yield Draft(f"self.{name} = {text}", (TextEdit(start, text),), start)


def _is_quotient(made: ast.expr) -> bool:
    """Whether a number is made by products and true quotients alone: it is none that must stay whole, and what it is made of need not be either."""
    operators = list(_operators(made))
    linear = all(isinstance(each, ast.Div | ast.Mult) for each in operators)
    return linear and any(isinstance(each, ast.Div) for each in operators)


def _operators(made: ast.expr) -> Iterator[ast.operator]:
    """The operators that a number is made by, calls apart."""
    if isinstance(made, ast.BinOp):
        yield made.op
        yield from _operators(made.left)
        yield from _operators(made.right)


def _stands_first(program: Program, part: ast.expr, made: ast.expr) -> bool:
    """Whether a product with a part needs no brackets: nothing binds it more tightly from the left."""
    match program.parents.get(part):
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div() | ast.FloorDiv()):
            return left is part
        case ast.Call():
            return True
    return part is made
