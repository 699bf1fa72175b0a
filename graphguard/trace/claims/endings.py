"""Where a program returns what it returns."""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
from collections.abc import Iterator
from typing import Any

import torch

from graphguard.ir import Span
from graphguard.trace.pure.lookups import Doubt
from graphguard.trace.pure.texts import source_of


def returning(program: Any) -> Span | None:
    """The one ``return`` of a module's or function's code, or where that begins; None for what has none in Python."""
    function = program.forward if isinstance(program, torch.nn.Module) else program
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return None
    try:
        body, _ = source_of(code)
    except Doubt:
        return Span(code.co_filename, code.co_firstlineno)
    found = list(_returns(body))
    if len(found) != 1:
        return Span(code.co_filename, code.co_firstlineno)
    line = linecache.getline(code.co_filename, found[0].lineno).rstrip()
    return Span(code.co_filename, found[0].lineno, found[0].col_offset + 1, found[0].lineno, len(line) + 1)


def _returns(body: list[ast.stmt]) -> Iterator[ast.Return]:
    for statement in body:
        if isinstance(statement, ast.Return):
            yield statement
        elif not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for field in ("body", "orelse", "finalbody"):
                yield from _returns(getattr(statement, field, []))
            for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
                yield from _returns(part.body)
