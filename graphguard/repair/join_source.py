"""The dim along which gathered parts are joined, as text."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from graphguard.ir import Span
from graphguard.repair.program import Program, definitions
from graphguard.repair.source import Draft
from graphguard.report.diagnostics import TextEdit

_JOINING = frozenset({"cat", "concat", "concatenate", "all_gather_tensor", "all_gather_tensor_autograd"})
_WORDS = frozenset({"dim", "axis", "gather_dim"})


def join_along(program: Program, span: Span, dim: int) -> Iterator[Draft]:
    """Join along another dim: within an expression, then within what its names are assigned."""
    value = program.expression(span)
    names = [node for node in ast.walk(value) if isinstance(node, ast.Name)] if value is not None else []
    near = [value] if value is not None else []
    for each in (*near, *(made for name in names for made in definitions(program, name))):
        for call in ast.walk(each):
            if isinstance(call, ast.Call) and _called(call) in _JOINING and call.args:
                yield Draft(f"join along dim {dim}", (_with_dim(program, call, dim),), program.span(call))


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _with_dim(program: Program, call: ast.Call, dim: int) -> TextEdit:
    said = [*(word.value for word in call.keywords if word.arg in _WORDS), *call.args[1:2]]
    if said:
        return TextEdit(program.span(said[0]), str(dim))
    last = program.span(call.args[0])
    at = Span(program.file, last.end_line, last.end_column, last.end_line, last.end_column)
    return TextEdit(at, f", dim={dim}")
