"""Where the ranks' programs meet again: a tensor that they make in different places has one name only behind them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from graphguard.ir import Capture, Span
from graphguard.repair.graph.edits import InsertReduction
from graphguard.repair.text.frames import Sources
from graphguard.repair.text.program import Function, Program


def meeting_place(capture: Capture, edit: object, sources: Sources) -> Span | None:
    """The expression that chooses among what the ranks make in different places of one function, or hands it out; None where they make it in one place, or it is not told."""
    if not isinstance(edit, InsertReduction):
        return None
    spans = {_made(capture, rank, edit, sources) for rank in edit.tensors}
    first = next(iter(spans))
    program = sources.program(first.file) if first is not None else None
    function = program.enclosing_function(first) if program is not None and first is not None else None
    if program is None or function is None or len(spans) < 2:
        return None
    names: list[set[str]] = []
    for span in spans:
        value = program.expression(span) if span is not None and span.file == program.file else None
        if value is None or program.function(value) is not function:
            return None
        names.append(set(_assigned(program, value)))
    return next((program.span(node) for node in _choosing(function, names)), None)


def _made(capture: Capture, rank: int, edit: InsertReduction, sources: Sources) -> Span | None:
    """Where a rank makes its tensor."""
    graph = capture.ranks[rank]
    index = graph.producers().get(edit.tensors[rank])
    return None if index is None else sources.place(graph, graph.nodes[index])


def _assigned(program: Program, value: ast.expr) -> Iterator[str]:
    """The names that the statement around an expression gives what it computes."""
    statement = program.statement(value)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    for target in targets:
        yield from (node.id for node in ast.walk(target) if isinstance(node, ast.Name))


def _choosing(function: Function, names: list[set[str]]) -> Iterator[ast.expr]:
    """What chooses between values of such names, then what hands out one name that all of them have."""
    for node in ast.walk(function):
        if isinstance(node, ast.IfExp):
            read = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
            if all(read & own for own in names):
                yield node
    common = set.intersection(*names)
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Name) and node.value.id in common:
            yield node.value
