"""Statements in another order, and names that are read after they have got another value."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Final

from graphguard.repair.nearby.scene import Mistake, Scene, Scope, shown
from graphguard.report.diagnostics import TextEdit

_FAR: Final = 3  # statements that one is moved over
_MOVED: Final = ast.Assign | ast.AugAssign | ast.Expr | ast.For | ast.If | ast.With


def moved(scope: Scope, scene: Scene) -> Iterator[Mistake]:
    """A statement before one that hands something on to it, or behind one that it hands something on to: through tensors, as they were recorded, a name that has a value already, or what an object keeps.

    What a check runs itself tells a story, which another order changes: there, those beside each other are exchanged alone.
    """
    program = scope.program
    own = (
        rows for rows in scope.blocks() if program.function(rows[0]) is scope.function
    )  # a function within has its own
    for rows in own:
        for first, second in _pairs(rows, 1 if scope.function in scene.outermost else _FAR):
            if not all(isinstance(each, _MOVED) for each in rows[first : second + 1]):
                continue
            if not _hands_on(rows[first], rows[second], scope, scene):
                continue
            before, behind = (second, *range(first, second)), (*range(first + 1, second + 1), first)
            for order in dict.fromkeys((before, behind)):
                if _can_run(rows, first, order, scope) and _is_read_behind(rows[first], rows[second], scope):
                    texts = [program.source(rows[number]) for number in order]
                    places = [program.span(each) for each in rows[first : second + 1]]
                    one, other = (program.source(rows[number]) for number in (first, second))
                    told = f"'{shown(one)}' stands before '{shown(other)}', and is needed behind it"
                    title = f"{shown(other)} before {shown(one)}"
                    yield Mistake(told, title, tuple(map(TextEdit, places, texts)), places[0])


def _pairs(rows: Sequence[ast.stmt], far: int) -> Iterator[tuple[int, int]]:
    """The numbers of two statements of a row, those beside each other first."""
    return ((first, first + away) for away in range(1, far + 1) for first in range(len(rows) - away))


def _hands_on(first: ast.stmt, second: ast.stmt, scope: Scope, scene: Scene) -> bool:
    """Whether a statement reads what one before it sets, runs an object of which the other sets something, or makes calls that read what those of the other gave."""
    if _names(first, ast.Store) & _names(second, ast.Load):
        return True
    if _runs(first) & _changed(second) or _runs(second) & _changed(first):
        return True
    return scene.flows.between(scope.program.file, first, second)


def _can_run(rows: Sequence[ast.stmt], first: int, order: Sequence[int], scope: Scope) -> bool:
    """Whether every name that the statements read has a value still, in another order."""
    known = {*scope.parameters, *_bound_above(rows[first], scope)}
    later = {name for number in order for name in _names(rows[number], ast.Store)} - known
    for number in order:
        later -= _names(rows[number], ast.Store)
        if later & _names(rows[number], ast.Load):
            return False
    return True


def _is_read_behind(statement: ast.stmt, last: ast.stmt, scope: Scope) -> bool:
    """Whether a statement that only binds names is still read, if it stands behind another one: else to move it would be to remove it."""
    kinds = (ast.Expr, ast.Attribute, ast.Subscript, ast.Return, ast.Raise)
    effects = (node for node in ast.walk(statement) if isinstance(node, kinds))
    if any(isinstance(node, ast.Expr) or isinstance(getattr(node, "ctx", None), ast.Store) for node in effects):
        return True
    bound = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    end = last.end_lineno or last.lineno
    names = [node for node in scope.nodes() if isinstance(node, ast.Name) and node.id in bound]
    if any(isinstance(node.ctx, ast.Load) and node.lineno > end for node in names):
        return True
    again = (each for each in scope.program.ancestors(statement) if isinstance(each, ast.For | ast.While))
    begins = min((each.lineno for each in again), default=statement.lineno)
    own = {*ast.walk(statement)}
    before = [node for node in names if begins <= node.lineno < statement.lineno and node not in own]
    stored = {node.id for node in before if isinstance(node.ctx, ast.Store)}
    return any(isinstance(node.ctx, ast.Load) and node.id not in stored for node in before)


def _bound_above(statement: ast.stmt, scope: Scope) -> Iterator[str]:
    """The names that have a value whenever a statement is come to: of what stands above it in its own row, and in those around it."""
    here: ast.AST = statement
    for outer in scope.program.ancestors(statement):
        for rows in (getattr(outer, name, None) for name in ("body", "orelse", "finalbody")):
            if isinstance(rows, list) and here in rows:
                for above in rows[: rows.index(here)]:
                    yield from _names(above, ast.Store)
        if isinstance(outer, ast.For):
            yield from (node.id for node in ast.walk(outer.target) if isinstance(node, ast.Name))
        if outer is scope.function:
            return
        here = outer


def _runs(statement: ast.stmt) -> set[str]:
    """The objects that a statement calls, by name: ``model`` in ``loss = model(x)``."""
    return {ast.unparse(node.func) for node in ast.walk(statement) if isinstance(node, ast.Call)}


def _changed(statement: ast.stmt) -> set[str]:
    """The object of which a statement sets an attribute, by name: ``model`` in ``model.is_last = True``."""
    match statement:
        case ast.Assign(targets=[ast.Attribute(value=held)]):
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
