"""Numbers that a function is given as an argument: where its caller says them, which is where they are wrong if others call the function as well."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise

from graphguard.ir import Graph, Node, Span
from graphguard.repair.text.frames import Sources
from graphguard.repair.text.program import Function, Program
from graphguard.repair.writing.source import Draft
from graphguard.report.diagnostics import TextEdit


def passed(graph: Graph, node: Node, sources: Sources) -> Iterator[tuple[Span, str]]:
    """The arguments that callers give for what a product or a quotient is made with, the innermost caller first, with the text that stands for leaving it out."""
    frames = sources.frames(graph, node)
    program = sources.program(frames[0].span.file) if frames else None
    value = program.expression(frames[0].span) if program is not None else None
    sides = [value.right, value.left] if isinstance(value, ast.BinOp) else []
    for side in sides:
        name = side.id if isinstance(side, ast.Name) else ""
        within, default = program, "1"
        for inner, outer in pairwise(frames):
            function = within.enclosing_function(inner.span) if within is not None else None
            within = sources.program(outer.span.file)
            if not isinstance(function, Function) or within is None or not name:
                break
            default = _default(function, name, sources.program(inner.span.file)) or default
            argument = _argument(function, name, within.expression(outer.span))
            if argument is None:
                break
            yield within.span(argument), default
            name = argument.id if isinstance(argument, ast.Name) else ""


def _argument(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str, call: ast.expr | None) -> ast.expr | None:
    """What a call gives for a parameter; None where it gives nothing, or that cannot be told."""
    if not isinstance(call, ast.Call) or any(isinstance(arg, ast.Starred) for arg in call.args):
        return None
    for word in call.keywords:
        if word.arg == name:
            return word.value
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    if name not in names:
        return None

    place = names.index(name) - (names[:1] == ["self"])
    return call.args[place] if 0 <= place < len(call.args) else None


def _default(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str, program: Program | None) -> str:
    """What a parameter is if it is not given; empty where it must be given."""
    if program is None:
        return ""
    arguments = [*function.args.posonlyargs, *function.args.args]
    pairs = [
        *zip(reversed(arguments), reversed(function.args.defaults), strict=False),
        *(
            (arg, value)
            for arg, value in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
            if value
        ),
    ]
    return next((program.source(value) for arg, value in pairs if arg.arg == name), "")


def given_instead(program: Program, span: Span, text: str) -> Iterator[Draft]:
    """Another argument."""
    value = program.expression(span)
    if value is not None and program.source(value) != text:
        word = program.parents.get(value)
        name = f"{word.arg}=" if isinstance(word, ast.keyword) and word.arg else ""
        yield Draft(f"{name}{text} instead of {name}{program.source(value)}", (TextEdit(span, text),), span)
