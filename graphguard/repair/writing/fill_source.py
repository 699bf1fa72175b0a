"""The number that a tensor is filled up with, as text: in the call that fills, or in what the call joins."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from graphguard.ir import Span
from graphguard.repair.text.program import Program, definitions
from graphguard.repair.text.vocabulary import called_name
from graphguard.repair.writing.source import Draft
from graphguard.report.diagnostics import TextEdit

_CONSTANTS = {"zeros": 0.0, "ones": 1.0, "new_zeros": 0.0, "new_ones": 1.0, "zeros_like": 0.0, "ones_like": 1.0}
_PADDED = 3  # ``F.pad(x, pad, mode, value)``: where its number stands
_JOINING = frozenset({"cat", "concat", "concatenate"})
_DEPTH = 3


def other_fill(program: Program, span: Span, number: float, other: float) -> Iterator[Draft]:
    """Fill up with another number: where the call says it, else where what it joins is made."""
    value = program.expression(span)
    if not isinstance(value, ast.Call):
        return
    text = f'float("{other:g}")' if abs(other) == float("inf") else repr(other)
    for edit in _edits(program, value, number, text, _DEPTH):
        yield Draft(f"fill up with {other:g}", (edit,), filled_at(program, span, number) or span)


def filled_at(program: Program, span: Span, number: float) -> Span | None:
    """Where the number is said on other lines than those of the call; None where the call says it, or it is said in several places."""
    value = program.expression(span)
    if (
        not isinstance(value, ast.Call) or called_name(value) not in _JOINING
    ):  # what fills up says its number, if only by name
        return None
    found = {edit.span for edit in _edits(program, value, number, "", _DEPTH)}
    only = found.pop() if len(found) == 1 else None
    return None if only is None or span.line <= only.line <= (span.end_line or span.line) else only


def _edits(program: Program, value: ast.expr, number: float, text: str, depth: int) -> Iterator[TextEdit]:
    """Changes of the number within an expression, then within what its names are assigned."""
    names: list[ast.Name] = []
    for node in ast.walk(value):
        if isinstance(node, ast.Name):
            names.append(node)
        if not isinstance(node, ast.Call):
            continue
        called = called_name(node)
        if _CONSTANTS.get(called) == number:
            yield from _of_constant(program, node, called, text)
        elif called == "pad":
            yield from _of_padding(program, node, number, text)
        elif called in {"full", "new_full", "full_like", "masked_fill", "where", "tensor"}:
            arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
            yield from (TextEdit(program.span(each), text) for each in _numbers(arguments) if _number(each) == number)
    for name in names if depth else ():
        for each in definitions(program, name):
            branches = [each.body, each.orelse] if isinstance(each, ast.IfExp) else [each]
            yield from (TextEdit(program.span(branch), text) for branch in branches if _number(branch) == number)
            yield from _edits(program, each, number, text, depth - 1)


def _of_constant(program: Program, call: ast.Call, called: str, text: str) -> Iterator[TextEdit]:
    """``torch.zeros(a, b)`` becomes ``torch.full((a, b), number)``."""
    function = program.source(call.func).removesuffix(called)
    sizes = [program.source(arg) for arg in call.args]
    if called.endswith("_like"):
        function, first = f"{function}full_like", sizes[0]
    else:
        function = f"{function}{'new_' if called.startswith('new_') else ''}full"
        whole = len(call.args) == 1 and isinstance(call.args[0], ast.Tuple | ast.List | ast.Attribute)
        first = sizes[0] if whole else f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
    words = [program.source(keyword.value) for keyword in call.keywords]
    more = [f"{keyword.arg}={word}" for keyword, word in zip(call.keywords, words, strict=True)]
    yield TextEdit(program.span(call), f"{function}({', '.join([first, text, *more])})")


def _of_padding(program: Program, call: ast.Call, number: float, text: str) -> Iterator[TextEdit]:
    """``F.pad(x, (1, 1))`` becomes ``F.pad(x, (1, 1), value=number)``."""
    said = [*call.args[_PADDED:], *(keyword.value for keyword in call.keywords if keyword.arg == "value")]
    if said:
        yield from (TextEdit(program.span(each), text) for each in said if _number(each) == number)
    elif number == 0:
        last = program.span((*call.args, *(keyword.value for keyword in call.keywords))[-1])
        at = Span(program.file, last.end_line, last.end_column, last.end_line, last.end_column)
        yield TextEdit(at, f", value={text}")


def _numbers(arguments: list[ast.expr]) -> Iterator[ast.expr]:
    """The arguments, and what they list."""
    for each in arguments:
        yield from _numbers(each.elts) if isinstance(each, ast.List | ast.Tuple) else (each,)


def _number(node: ast.expr) -> float | None:
    """The number that a literal is; None for anything else."""
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            negated = _number(operand)
            return None if negated is None else -negated
        case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value="inf" | "-inf" as said)]):
            return float(said)
        case ast.Attribute(attr="inf"):
            return float("inf")
    return None
