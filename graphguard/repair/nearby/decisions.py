"""Decisions of Python taken the other way: a statement that is not run, a branch that is turned, one more or one less counted.

The graphs hold only what came of them.  That one mends shows where the defect is; whether the program can do without it elsewhere, nothing says: it is no fix.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Final

from graphguard.repair.nearby.scene import Mistake, Scene, Scope, shown
from graphguard.repair.text.vocabulary import called_name, distributed_name
from graphguard.report.diagnostics import TextEdit

_NEEDED: Final = frozenset({"__init__", "backward", "wait", "save_for_backward"})
_CALLERS: Final = 4  # functions that do no more than call each other
_OTHER: Final[dict[type[ast.cmpop], str]] = {ast.Is: "is not", ast.IsNot: "is", ast.Eq: "!=", ast.NotEq: "=="}


def undone(scope: Scope, scene: Scene) -> Iterator[Mistake]:
    """A statement not run by which an object forgets what it keeps, or that calls what gives nothing back."""
    return _without(scope, scene, lambda each: _forgets(each, scope, own=True) or _is_plain_call(each, scope))


def cleared(scope: Scope, scene: Scene) -> Iterator[Mistake]:
    """The same of what another object keeps."""
    return _without(scope, scene, lambda each: _forgets(each, scope, own=False))


def _without(scope: Scope, scene: Scene, is_doubtful: Callable[[ast.stmt], bool]) -> Iterator[Mistake]:
    """Statements not run: the calls that lead to no more than one first, the outermost first of all; but those that a check itself asks for."""
    for statement in (each for rows in scope.blocks() for each in rows if is_doubtful(each)):
        for owner, each in (*reversed(_leading(scope, scene)), (scope, statement)):
            if isinstance(each, ast.Expr) and owner.program.function(each) in scene.outermost:
                continue
            text, place = owner.program.source(each), owner.program.span(each)
            told = f"'{shown(text)}' is run, and must not be"
            yield Mistake(told, f"without {shown(text)}", (TextEdit(place, "pass"),), place)


def _forgets(statement: ast.stmt, scope: Scope, own: bool) -> bool:
    """Whether a statement sets what an object keeps to a constant, and not for the first time: the object itself, or another one."""
    if scope.function.name == "__init__":
        return False
    match statement:
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript() as target], value=ast.Constant()):
            first = next((node.id for node in ast.walk(target) if isinstance(node, ast.Name)), "")
            return own is (first == "self")
    return False


def _is_plain_call(statement: ast.stmt, scope: Scope) -> bool:
    """Whether a statement calls a function for what it does; which collectives are needed, the graphs say."""
    if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)):
        return False
    head = getattr(statement.value.func, "value", None)
    called = called_name(statement.value)
    of_tensors = called in _NEEDED or called.endswith("_")
    return getattr(head, "id", None) != distributed_name(scope.program) and not of_tensors


def _leading(scope: Scope, scene: Scene) -> list[tuple[Scope, ast.stmt]]:
    """The only statements that call a function, and that around it, for what they do."""
    found: list[tuple[Scope, ast.stmt]] = []
    while len(found) < _CALLERS:
        name = scope.function.name
        calls = [
            (each, node)
            for each in scene.scopes
            for node in each.nodes()
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and called_name(node.value) == name
        ]
        if len(calls) != 1 or calls[0][0].function is scope.function:
            break
        found += calls
        scope = calls[0][0]
    return found
