"""Repairs of programs that leave DTensor for a while: what a partial one becomes behind ``to_local``, and the placements that local results are given."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from graphguard.ir import Span
from graphguard.repair.text.program import Function, Program
from graphguard.repair.writing.plans import imported
from graphguard.repair.writing.source import Draft
from graphguard.report.diagnostics import TextEdit

_OUT: Final = "out_placements"
_FROM_LOCAL, _LOCAL_MAP = "from_local", "local_map"
_MOST: Final = 3  # placements of one function that are tried


def whole_instead(program: Program, span: Span) -> Iterator[Draft]:
    """``full_tensor()`` in place of a ``to_local()`` that hands out summands, in the function that computes them."""
    value = program.expression(span)
    function = program.function(value) if value is not None else None
    for call in _calls(function or program.tree):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "to_local" and call.lineno >= span.line:
            name, place = program.span(call.func), program.span(call)
            at = replace(place, line=name.end_line, column=name.end_column - len("to_local"))
            yield Draft("full_tensor() instead of to_local()", (TextEdit(at, "full_tensor()"),), place)


def partial_instead(program: Program, span: Span) -> Iterator[Draft]:
    """``Partial()`` in place of a ``Replicate()`` by which summands are taken for whole tensors."""
    for given in _given(program, span):
        for placement in _named(given, "Replicate"):
            place = program.span(placement)
            edits = (TextEdit(place, "Partial()"), *imported(program, "Partial"))
            yield Draft("Partial() instead of Replicate()", edits, place)


def sharded_instead(program: Program, span: Span, wanted: object) -> Iterator[Draft]:
    """``Shard`` along another dim, for the local results of a function."""
    value = program.expression(span)
    function = program.function(value) if value is not None else None
    placements = [
        each
        for call in _calls(function or program.tree)
        for given in _placements(call)
        for each in _named(given, "Shard")
    ]
    for placement in placements[:_MOST]:
        text = f"Shard({wanted})"
        if program.source(placement) != text:
            place = program.span(placement)
            yield Draft(f"{text} instead of {program.source(placement)}", (TextEdit(place, text),), place)


def _given(program: Program, span: Span) -> Iterator[ast.expr]:
    """The placements that the results of the function around a place are given, or that are given there."""
    value = program.expression(span)
    function = program.function(value) if value is not None else None
    own = function.name if isinstance(function, Function) else ""
    for call in _calls(program.tree):
        mapped = _name(call) == _LOCAL_MAP and call.args and isinstance(call.args[0], ast.Name)
        if mapped and isinstance(call.args[0], ast.Name) and call.args[0].id == own:
            yield from _placements(call)
    for call in _calls(function) if function is not None else ():
        if _name(call) == _FROM_LOCAL and call.lineno >= span.line:
            yield from _placements(call)


def _placements(call: ast.Call) -> Iterator[ast.expr]:
    """What a call says of how local tensors are placed."""
    if _name(call) == _LOCAL_MAP:
        yield from (word.value for word in call.keywords if word.arg == _OUT)
        yield from call.args[1:2]
    elif _name(call) == _FROM_LOCAL:
        yield from (word.value for word in call.keywords if word.arg == "placements")
        yield from call.args[2:3]


def _named(given: ast.expr, name: str) -> Iterator[ast.Call]:
    return (each for each in _calls(given) if _name(each) == name)


def _calls(within: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(within) if isinstance(node, ast.Call))


def _name(call: ast.Call) -> str:
    return (
        call.func.attr
        if isinstance(call.func, ast.Attribute)
        else call.func.id
        if isinstance(call.func, ast.Name)
        else ""
    )
