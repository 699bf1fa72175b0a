"""Text edits that take something out: a collective, which may stand elsewhere instead, a factor, a cast, with the statement that is nothing without it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from graphguard.ir import Capture, Span
from graphguard.repair.graph.edits import InsertReduction, MoveReduction
from graphguard.repair.text.program import MODULES, Program, assigned_name, is_number
from graphguard.repair.writing.source import Draft, insert_reduction
from graphguard.report.diagnostics import TextEdit

#: Operators that bind less than a product does.
_LOOSE = (ast.Add, ast.Sub, ast.LShift, ast.RShift, ast.BitAnd, ast.BitOr, ast.BitXor)
_ASKING = frozenset({"get_rank", "get_world_size", "is_available", "is_initialized", "isinstance", "len"})


def remove_call(program: Program, span: Span) -> Iterator[Draft]:
    """Take a collective out: its statement where it stands alone, else its argument in its place."""
    call = program.expression(span)
    if not isinstance(call, ast.Call) or not call.args:
        return
    statement = program.statement(call)
    title = f"remove {program.source(call)}"
    left = program.source(call.args[0])
    alone = isinstance(statement, ast.Expr) and statement.value is call
    if statement is not None and (alone or assigned_name(statement, call) == left):
        yield Draft(title, (_taken_out(program, statement),))
        return
    yield Draft(title, (TextEdit(program.span(call), left),))


def remove_factor(program: Program, span: Span) -> Iterator[Draft]:
    """Take a multiplication, a division or a cast out: what it was applied to stays."""
    scaled = program.augmented(span)
    if scaled is not None and isinstance(scaled.op, ast.Mult | ast.Div):
        yield Draft(f"remove {program.source(scaled)}", (_taken_out(program, scaled),))
        return
    value = program.expression(span)
    match value:
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div() as operator, right=right):
            kept = right if isinstance(operator, ast.Mult) and is_number(program, left) else left
        case ast.Call(func=ast.Attribute(value=receiver)) if (
            not isinstance(receiver, ast.Name) or receiver.id not in MODULES
        ):
            kept = receiver
        case _:
            return
    assert value is not None
    statement = program.statement(value)
    title = f"remove {_without(program.source(value), program.source(kept))}"
    pointless = statement is not None and assigned_name(statement, value) == program.source(kept)
    alone = isinstance(statement, ast.Expr) and statement.value is value and _only_asks(kept)
    if statement is not None and (alone or pointless):
        yield Draft(title, (_taken_out(program, statement),))
        return
    outer = program.parents.get(value)
    binds = isinstance(value, ast.BinOp) and isinstance(kept, ast.BinOp) and not isinstance(kept.op, _LOOSE)
    bare = isinstance(outer, ast.Attribute | ast.BinOp) and isinstance(kept, ast.BinOp) and not binds
    text = f"({program.source(kept)})" if bare else program.source(kept)
    yield Draft(title, (TextEdit(program.span(value), text),))


def move_reduction(
    program: Program, operand: Span, reduction: Span, edit: MoveReduction, capture: Capture
) -> Iterator[Draft]:
    """Reduce an operand, and no longer what is computed from it."""
    for removed in remove_call(program, reduction):
        inserted = InsertReduction(edit.tensors, edit.axis)
        for draft in insert_reduction(program, operand, inserted, capture):
            yield Draft(f"{draft.title} first", (*draft.edits, *removed.edits))


def _without(text: str, kept: str) -> str:
    """What is taken from a text if a part of it is kept: ``.half()`` of ``x.half()``, ``/ 2`` of ``(x + y) / 2``."""
    before, _, after = text.partition(kept)
    if before.endswith("(") and after.startswith(")"):
        before, after = before[:-1], after[1:]
    return f"{before.strip()} {after.strip()}".strip() or text


def _taken_out(program: Program, statement: ast.stmt) -> TextEdit:
    """A statement less: with the condition that stands before nothing else, and without what shares its line."""
    body = _siblings(program, statement)
    place, here = body.index(statement), program.span(statement)
    if len(body) == 1:
        around = program.parents[statement]
        if isinstance(around, ast.If) and around.body == body and not around.orelse and _only_asks(around.test):
            return _taken_out(program, around)
        return TextEdit(here, "pass")
    if place and (before := program.span(body[place - 1])).end_line == here.line:
        return TextEdit(Span(program.file, before.end_line, before.end_column, here.end_line, here.end_column), "")
    if place + 1 < len(body) and (after := program.span(body[place + 1])).line == here.end_line:
        return TextEdit(Span(program.file, here.line, here.column, after.line, after.column), "")
    return TextEdit(Span(program.file, here.line, 1, here.end_line + 1, 1), "")


def _only_asks(node: ast.expr) -> bool:
    """Whether an expression has no effect as far as its text tells."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call):
            name = inner.func.attr if isinstance(inner.func, ast.Attribute) else getattr(inner.func, "id", "")
            if name not in _ASKING:
                return False
        elif isinstance(inner, ast.Await | ast.NamedExpr | ast.Yield | ast.YieldFrom):
            return False
    return True


def _siblings(program: Program, statement: ast.stmt) -> list[ast.stmt]:
    """The statements of the block that one stands in."""
    parent = program.parents[statement]
    for field in ("body", "orelse", "finalbody"):
        body = getattr(parent, field, [])
        if statement in body:
            return list(body)
    return [statement]
