"""Statements in another order, and names that are read after they have got another value."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise

from graphguard.repair.nearby.scene import Mistake, Scene, Scope, shown
from graphguard.report.diagnostics import TextEdit

_SIMPLE = ast.Assign | ast.AugAssign | ast.Expr


def exchanged(scope: Scope, _scene: Scene) -> Iterator[Mistake]:
    """Two statements that follow each other the other way round: one reads what the other sets, or runs an object of which the other sets something."""
    program = scope.program
    for rows in scope.blocks():
        for first, second in pairwise(rows):
            if not (isinstance(first, _SIMPLE) and isinstance(second, _SIMPLE)):
                continue
            if not (_needs(first, second, scope) or _runs(first) & _changed(second) or _runs(second) & _changed(first)):
                continue
            one, other = program.source(first), program.source(second)
            edits = TextEdit(program.span(first), other), TextEdit(program.span(second), one)
            told = f"'{shown(one)}' stands before '{shown(other)}', and is needed behind it"
            yield Mistake(told, f"{shown(other)} before {shown(one)}", edits, program.span(first))


def _needs(first: ast.stmt, second: ast.stmt, scope: Scope) -> bool:
    """Whether a statement reads what the one before it sets, and could be run without it."""
    sets, known = _names(first, ast.Store), scope.bound_before(first)
    return bool(sets & _names(second, ast.Load)) and all("." in name or name in known for name in sets)


def _runs(statement: ast.stmt) -> set[str]:
    """The objects that a statement calls, by name: ``model`` in ``loss = model(x)``."""
    return {ast.unparse(node.func) for node in ast.walk(statement) if isinstance(node, ast.Call)}


def _changed(statement: ast.stmt) -> set[str]:
    """The object of which a statement sets an attribute, or calls a method for what it does, by name: ``model`` in ``model.is_last = True``."""
    match statement:
        case ast.Assign(targets=[ast.Attribute(value=held)]):
            return {ast.unparse(held)}
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=held))):
            return {ast.unparse(held)}
    return set()


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
