"""The dim along which gathered parts are joined, as text."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from graphguard.ir import Span
from graphguard.repair.text.program import Function, Program, definitions
from graphguard.repair.text.vocabulary import called_name
from graphguard.repair.writing.source import Draft
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
            if not isinstance(call, ast.Call) or not call.args:
                continue
            if called_name(call) in _JOINING and not _is_handed_in(program, call):
                yield Draft(f"join along dim {dim}", (_with_dim(program, call, dim),), program.span(call))
            elif (said := _handed_on(program, call)) is not None:
                yield Draft(f"join along dim {dim}", (TextEdit(program.span(said), str(dim)),), program.span(call))


def _is_handed_in(program: Program, call: ast.Call) -> bool:
    """Whether the dim of a joining call is an argument that every caller of the function around it gives."""
    function, dims = program.function(call), _dims(call)
    if function is None or not dims or not isinstance(dims[0], ast.Name):
        return False
    arguments = function.args
    required = arguments.args[: len(arguments.args) - len(arguments.defaults)]
    required += [
        each for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default is None
    ]
    return dims[0].id in {argument.arg for argument in required}


def _handed_on(program: Program, call: ast.Call) -> ast.expr | None:
    """The argument of a call of a function of the file that is the dim along which that function joins."""
    functions = (
        node for node in ast.walk(program.tree) if isinstance(node, Function) and node.name == called_name(call)
    )
    for function in functions:
        names = [argument.arg for argument in function.args.args]
        for inner in ast.walk(function):
            dims = _dims(inner) if isinstance(inner, ast.Call) and called_name(inner) in _JOINING else []
            for dim in dims:
                if isinstance(dim, ast.Name) and dim.id in names:
                    words = [word.value for word in call.keywords if word.arg == dim.id]
                    return next(iter([*words, *call.args[names.index(dim.id) :][:1]]), None)
    return None


def _dims(call: ast.Call) -> list[ast.expr]:
    """What a joining call says of its dim."""
    return [*(word.value for word in call.keywords if word.arg in _WORDS), *call.args[1:2]]


def _with_dim(program: Program, call: ast.Call, dim: int) -> TextEdit:
    if said := _dims(call):
        return TextEdit(program.span(said[0]), str(dim))
    last = program.span(call.args[0])
    at = Span(program.file, last.end_line, last.end_column, last.end_line, last.end_column)
    return TextEdit(at, f", dim={dim}")
