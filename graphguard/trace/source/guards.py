"""Conditions without which a program raises: what it asserts, and what an ``if`` with a ``raise`` asks; and those on which it leaves what it is in, as an ``if`` with a ``break`` does.

A condition of the first kind is recorded as where the program goes on: where it does not, there is nothing to compare.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeAlias

from graphguard.ir.spans import Span

#: Conditions made of conditions.
_COMPOSED: Final = (ast.BoolOp, ast.UnaryOp)

_Part: TypeAlias = tuple[ast.expr, bool]
_Test: TypeAlias = tuple[ast.stmt, ast.expr, bool]
_Ends: TypeAlias = Callable[[list[ast.stmt]], bool]

#: Functions that end a program.
_EXITS: Final = ("exit", "quit", "_exit", "abort")


@dataclass(frozen=True, slots=True)
class Needed:
    """What a condition must be for the program to go on, and how it is written."""

    truth: bool
    written: str


def needed_truth(span: Span) -> Needed | None:
    """What the condition at a place must be; None where the program goes on with either, or that is not seen."""
    return _needed_at(span, _raises)


def way_on(span: Span) -> bool:
    """What the condition at a place is where the program neither raises, ends, leaves a loop or function, nor stays in a ``while``; True where it does none of these."""
    needed = _needed_at(span, _leaves)
    return needed is None or needed.truth


def _needed_at(span: Span, ends: _Ends) -> Needed | None:
    text, tests = _tests(span.file, ends)
    for statement, test, needed in tests:
        if not statement.lineno <= span.line <= (statement.end_lineno or statement.lineno):
            continue
        if isinstance(statement, ast.Assert) and not isinstance(test, _COMPOSED) and _stands_at(statement, span):
            found: _Part | None = (
                test,
                needed,
            )  # all of an assertion that pytest writes out stands where the assertion does
        else:
            found = _within(test, needed, span)
        if found is not None:
            condition, truth = found
            return Needed(truth, " ".join((ast.get_source_segment(text, condition) or "").split()))
    return None


@cache
def _tests(file: str, ends: _Ends) -> tuple[str, tuple[_Test, ...]]:
    """The text of a file, and its conditions that lead to what ``ends`` unless they are this truth value, each in its statement, outside of what catches exceptions."""
    text = "".join(linecache.getlines(file))
    found: list[_Test] = []
    try:
        _collect(ast.parse(text).body, found, ends)
    except (SyntaxError, ValueError):
        return "", ()
    return text, tuple(found)


def _collect(body: list[ast.stmt], found: list[_Test], ends: _Ends) -> None:
    for statement in body:
        if isinstance(statement, ast.Assert):
            found.append((statement, statement.test, True))
        elif isinstance(statement, ast.Expr) and _is_assertion(statement.value):
            found.append((statement, statement.value, True))
        elif isinstance(statement, ast.If) and ends(statement.body):
            found.append((statement, statement.test, False))
        elif isinstance(statement, ast.If) and ends(statement.orelse):
            found.append((statement, statement.test, True))
        elif isinstance(statement, ast.While) and ends is _leaves:
            found.append((statement, statement.test, False))
        caught = isinstance(statement, ast.Try | ast.TryStar) and statement.handlers
        for name in ("orelse", "finalbody") if caught else ("body", "orelse", "finalbody"):
            inner = getattr(statement, name, None)
            if isinstance(inner, list):
                _collect(inner, found, ends)
        for inner in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            _collect(inner.body, found, ends)


def _is_assertion(value: ast.expr) -> bool:
    """Whether a call is ``torch._assert``."""
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "_assert"


def _raises(body: list[ast.stmt]) -> bool:
    """Whether statements end in an exception."""
    return bool(body) and isinstance(body[-1], ast.Raise)


def _leaves(body: list[ast.stmt]) -> bool:
    """Whether statements end in what leaves the loop, the function or the program that they are in."""
    last = body[-1] if body else None
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        called = last.value.func
        return (called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")) in _EXITS
    return isinstance(last, ast.Raise | ast.Break | ast.Return)


def _within(test: ast.expr, needed: bool, span: Span) -> _Part | None:
    """The part of a condition that stands at ``span``, and what it must be."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _within(test.operand, not needed, span)
    if isinstance(test, ast.BoolOp):
        # All parts are needed of a conjunction that must hold; of one that must not, the last decides where the others hold.
        every = isinstance(test.op, ast.And) is needed
        parts = test.values if every else test.values[-1:]
        found = [_within(part, needed, span) for part in parts]
        return next((one for one in found if one is not None), None)
    if not _stands_at(test, span):
        return None
    called = isinstance(test, ast.Call) and _is_assertion(test) and bool(test.args)
    return (test.args[0] if called and isinstance(test, ast.Call) else test), needed


def _stands_at(test: ast.expr | ast.stmt, span: Span) -> bool:
    end = (test.end_lineno or test.lineno, (test.end_col_offset or 0) + 1)
    return (span.line, span.column) == (test.lineno, test.col_offset + 1) and (span.end_line, span.end_column) == end
