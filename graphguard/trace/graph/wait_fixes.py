"""How a program can be written so that it waits for an asynchronous collective."""

from __future__ import annotations

import ast

from graphguard.ir import Span
from graphguard.ir.capture import Mending
from graphguard.trace.graph.places import Place, place_of


def is_dropped(called: Span) -> bool:
    """Whether a statement is a call alone, so that nothing has what it returns."""
    place = place_of(called)
    return place is not None and isinstance(place.statement, ast.Expr) and place.statement.value is place.call


def awaited(called: Span | None, kind: str, met: Span | None) -> tuple[Mending, ...]:
    """Ways to wait for an asynchronous call: where its result is ``met``, if its handle is in sight there, and where it is made."""
    place, reader = place_of(called), place_of(met)
    call = None if place is None else place.call
    if place is None or call is None:
        return ()
    statement = place.statement
    if isinstance(statement, ast.Expr) and statement.value is call:
        keyword = next((each for each in call.keywords if each.arg == "async_op"), None)
        before = max(
            (*call.args, *(each.value for each in call.keywords if each is not keyword)), key=_end, default=None
        )
        if keyword is not None and before is not None and _end(before) < _end(keyword.value):
            start, end = place.span(before), place.span(keyword.value)
            left_out = Span(place.file, start.end_line, start.end_column, end.end_line, end.end_column)
            return (Mending(f"call {kind} without async_op", ((left_out, ""),)),)
        at = place.span(call)
        return (
            Mending(
                f"wait for the {kind}",
                ((Span(at.file, at.end_line, at.end_column, at.end_line, at.end_column), ".wait()"),),
            ),
        )
    if (
        not isinstance(statement, ast.Assign)
        or len(statement.targets) != 1
        or not isinstance(statement.targets[0], ast.Name)
    ):
        return ()
    handle = statement.targets[0].id
    if statement.value is call:
        ways = [] if reader is None or not _is_behind(place, reader) else [reader.before(f"{handle}.wait()")]
        return tuple(
            Mending(f"call {handle}.wait() first", (edit,)) for edit in (*ways, place.after(f"{handle}.wait()"))
        )
    if isinstance(statement.value, ast.ListComp) and statement.value.elt is call:
        waiting = f"for work in {handle}:\n{place.indent()}    work.wait()"
        return (Mending(f"wait for {handle}", (place.after(waiting),)),)
    return ()


def _end(node: ast.expr) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


def _is_behind(one: Place, other: Place) -> bool:
    """Whether a statement comes behind another in the function that has it, in the same block or in one that begins behind it."""
    if one.file != other.file:
        return False
    for node in ast.walk(ast.parse("".join(one.lines))):
        for block in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
            rows = block if isinstance(block, list) else []
            at = next((i for i, row in enumerate(rows) if _bounds(row) == _bounds(one.statement)), None)
            if at is not None:
                return any(_holds(row, other.statement) for row in rows[at + 1 :])
    return False


def _holds(outer: ast.stmt, inner: ast.stmt) -> bool:
    """Whether a statement runs another: what a function within holds runs when that is called."""
    if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    (start, end), (first, last) = _bounds(outer), _bounds(inner)
    return start <= first and last <= end


def _bounds(statement: ast.stmt) -> tuple[tuple[int, int], tuple[int, int]]:
    return (statement.lineno, statement.col_offset), (statement.end_lineno or 0, statement.end_col_offset or 0)
