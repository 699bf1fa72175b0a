"""Statements in another order, and names that are read after they have got another value."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise

from graphguard.repair.nearby.scene import Mistake, Scene, Scope, shown
from graphguard.report.diagnostics import TextEdit

_SIMPLE = ast.Assign | ast.AugAssign | ast.Expr


def exchanged(scope: Scope, _scene: Scene) -> Iterator[Mistake]:
    """Two statements that follow each other and of which one reads what the other sets, the other way round."""
    program = scope.program
    for rows in scope.blocks():
        for first, second in pairwise(rows):
            if not (isinstance(first, _SIMPLE) and isinstance(second, _SIMPLE)):
                continue
            sets, known = _names(first, ast.Store), scope.bound_before(first)
            if not sets & _names(second, ast.Load) or not all("." in name or name in known for name in sets):
                continue  # nothing depends on their order, or the second one needs the first
            one, other = program.source(first), program.source(second)
            edits = TextEdit(program.span(first), other), TextEdit(program.span(second), one)
            told = f"'{shown(one)}' stands before '{shown(other)}', and is needed behind it"
            yield Mistake(told, f"{shown(other)} before {shown(one)}", edits, program.span(first))


def earlier(scope: Scope, _scene: Scene) -> Iterator[Mistake]:
    """What a name stood for before it was set again, where it is read after that."""
    for name, found in scope.program.assigned(scope.function).items():
        first = found[0]
        again = [
            node
            for node in scope.nodes()
            if isinstance(node, ast.Assign) and node.value is not first and name in _names(node, ast.Store)
        ]
        if len(found) > 1 or not again or not isinstance(first, ast.Name | ast.Attribute):
            continue
        text, last = scope.program.source(first), max(node.lineno for node in again)
        for node in scope.nodes():
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load) and node.lineno > last:
                told = f"'{name}' is no longer '{text}' here, which is needed (line {last} sets it again)"
                yield scope.instead(node, text, told, f"{text} instead of {name}")


def _names(statement: ast.stmt, context: type[ast.expr_context]) -> set[str]:
    """The names and attributes that a statement sets, or those that it reads, as text."""
    nodes = (node for node in ast.walk(statement) if isinstance(node, ast.Name | ast.Attribute))
    return {ast.unparse(node) for node in nodes if isinstance(node.ctx, context)}
