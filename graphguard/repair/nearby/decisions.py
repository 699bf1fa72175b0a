"""Decisions of Python taken the other way: a statement that is not run, a branch that is turned, one more or one less counted.

The graphs hold only what came of them.  That one mends shows where the defect is; whether the program can do without it elsewhere, nothing says: it is no fix.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from graphguard.repair.nearby.alike import COMPARED
from graphguard.repair.nearby.scene import Mistake, Scene, Scope, asks_which, shown
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
    """Statements not run: the calls that lead to no more than one first, the outermost first of all."""
    for statement in (each for rows in scope.blocks() for each in rows if is_doubtful(each)):
        for owner, each in (*reversed(_leading(scope, scene)), (scope, statement)):
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


def bounded(scope: Scope, _scene: Scene) -> Iterator[Mistake]:
    """In what a branch asks: a bound that counts where it does not, or the other way round; a step that is counted from zero where it is from one."""
    source = scope.program.source
    asked = (node.test for node in scope.nodes() if isinstance(node, ast.If | ast.IfExp | ast.While))
    for node in (each for test in asked for each in ast.walk(test)):
        match node:
            case ast.Compare(ops=[op], left=left, comparators=[right]) if type(op) in COMPARED:
                others = [f"{source(left)} {COMPARED[type(op)]} {source(right)}"]
            case ast.BinOp(op=ast.Mod(), left=left, right=right) if not isinstance(left, ast.Constant | ast.JoinedStr):
                others = [f"{other} % {source(right)}" for other in _counted_from(left, source(left))]
            case _:
                continue
        for other in others:
            yield scope.instead(node, other, f"'{shown(source(node))}' is asked where '{shown(other)}' is needed")


def _counted_from(number: ast.expr, text: str) -> list[str]:
    """A number one more, and one less."""
    match number:
        case ast.BinOp(op=ast.Add() | ast.Sub(), left=left, right=ast.Constant(value=1)):
            return [ast.unparse(left)]
    return [f"({text} + 1)", f"({text} - 1)"]


def turned(scope: Scope, _scene: Scene) -> Iterator[Mistake]:
    """The other branch of what is asked for without a tensor in sight; of several things that are asked for, all but one."""
    for node in scope.nodes():
        if isinstance(node, ast.If | ast.IfExp):
            yield from _turned(scope, node)


def everywhere(scope: Scope, _scene: Scene) -> Iterator[Mistake]:
    """A branch that does not ask which rank it is on, taken on the first or the last alone."""
    dist = distributed_name(scope.program)
    for node in scope.nodes() if dist is not None else ():
        if isinstance(node, ast.If | ast.IfExp) and not asks_which(node.test):
            text = scope.program.source(node.test)
            for rank, which in (("0", "first"), (f"{dist}.get_world_size() - 1", "last")):
                other = f"({text}) and {dist}.get_rank() == {rank}"
                told = f"the branch of '{shown(text)}' is needed on the {which} rank alone"
                yield scope.instead(node.test, other, told)


def skipped(scope: Scope, scene: Scene) -> Iterator[Mistake]:
    """The same where one branch runs a collective, and the other does not."""
    for node in scope.nodes():
        if isinstance(node, ast.If) and _communicates(node.body, scope, scene) is not _communicates(
            node.orelse, scope, scene
        ):
            yield from _turned(scope, node)


def _turned(scope: Scope, node: ast.If | ast.IfExp) -> Iterator[Mistake]:
    program = scope.program
    text = program.source(node.test)
    yield from _without_one(scope, node.test)
    match node.test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            other = program.source(operand)
        case ast.Compare(ops=[op], left=left, comparators=[right]) if type(op) in _OTHER:
            other = f"{program.source(left)} {_OTHER[type(op)]} {program.source(right)}"
        case _:
            other = f"not ({text})"
    yield scope.instead(node.test, other, f"the branch of '{shown(text)}' is taken where the other one is needed")


def _communicates(rows: Sequence[ast.stmt], scope: Scope, scene: Scene, depth: int = 2) -> bool:
    """Whether statements call a collective, or a function of the project that does."""
    dist = distributed_name(scope.program)
    for call in (node for row in rows for node in ast.walk(row) if isinstance(node, ast.Call)):
        head = getattr(getattr(call.func, "value", None), "id", None)
        if head == dist and not called_name(call).startswith(("get_", "is_", "new_")):
            return True
        if depth and any(_communicates(each.function.body, each, scene, depth - 1) for each in scene.callees(call)):
            return True
    return False


def _without_one(scope: Scope, test: ast.expr) -> Iterator[Mistake]:
    source = scope.program.source
    if isinstance(test, ast.BoolOp):
        word = " and " if isinstance(test.op, ast.And) else " or "
        for one in test.values:
            other = word.join(source(each) for each in test.values if each is not one)
            yield scope.instead(test, other, f"'{shown(source(one))}' is asked for, and must not decide here")


def counted(scope: Scope, _scene: Scene) -> Iterator[Mistake]:
    """A whole number without the one that is added to it, or taken from it."""
    program, dist = scope.program, distributed_name(scope.program)
    for node in scope.nodes():
        calls = (each.func for each in program.ancestors(node) if isinstance(each, ast.Call))
        sent = any(getattr(getattr(each, "value", None), "id", "") == dist for each in calls)  # the graphs say to whom
        match node:
            case ast.BinOp(op=ast.Add() | ast.Sub(), left=left, right=ast.Constant(value=int())) if not sent:
                text, other = program.source(node), program.source(left)
                yield scope.instead(node, other, f"'{shown(text)}' stands where '{shown(other)}' is needed")
