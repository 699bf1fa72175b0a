"""What a program has prepared and never uses: results that are thrown away, parameters that nothing reads, functions that nobody calls."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from graphguard.repair.nearby.scene import Mistake, Scene, Scope, shown
from graphguard.repair.text.program import METHODS, first_operand, is_module
from graphguard.repair.text.vocabulary import called_name, distributed_name

_COUNTS: Final = frozenset({"num", "n", "count", "steps", "size", "times", "total"})
_WHOLE: Final = ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.Constant


def discarded(scope: Scope, scene: Scene) -> Iterator[Mistake]:
    """The result of a call in place of the argument that it is made of, where nothing reads it."""
    for node in scope.nodes():
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
            continue
        operand = first_operand(node.value)
        if isinstance(operand, ast.Name | ast.Attribute) and _gives(node.value, scope, scene):
            name = scope.program.source(operand)
            told = f"nothing reads the result of '{shown(scope.program.source(node.value))}'"
            yield scope.before(node, f"{name} = ", told, f"use the result: {name} = ...")


def _gives(call: ast.Call, scope: Scope, scene: Scene) -> bool:
    """Whether a call may give a tensor: a method that changes nothing in place, or a function of the project that returns something."""
    name = called_name(call)
    if distributed_name(scope.program) == getattr(getattr(call.func, "value", None), "id", None):
        return False
    if isinstance(call.func, ast.Attribute) and (name in METHODS or name == "apply"):
        return True
    nodes = (node for each in scene.callees(call) for node in each.nodes())
    return any(isinstance(node, ast.Return) and node.value is not None for node in nodes)


def idle(scope: Scope, scene: Scene) -> Iterator[Mistake]:
    """What an argument is made of, or what is made of it, in its place, where a call stands for what it does and nothing is computed by it."""
    program = scope.program
    values = program.assigned(scope.function)
    for node in scope.nodes():
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)) or not scene.computing:
            continue
        if scope.computes(node, scene):
            continue
        for argument in node.value.args:
            for other in _akin(argument, values) if isinstance(argument, ast.Name) else ():
                call = shown(program.source(node.value))
                told = f"nothing that is compared is computed by '{call}', which is given '{program.source(argument)}' and needs '{other}'"
                yield scope.instead(argument, other, told)


def _akin(name: ast.Name, values: Mapping[str, Sequence[ast.expr]]) -> list[str]:
    """The values of a function that a value is made of directly, then those made of it."""
    sources = [other for value in values.get(name.id, ()) for other in _names(value) if other in values]
    made = [other for other, found in values.items() if any(name.id in _names(value) for value in found)]
    return [other for other in dict.fromkeys((*sources, *made)) if other != name.id]


def _names(value: ast.expr) -> list[str]:
    return [node.id for node in ast.walk(value) if isinstance(node, ast.Name)]


def kept_from_loop(scope: Scope, _scene: Scene) -> Iterator[Mistake]:
    """What the last pass of a loop left under a name, read in another loop that does not set it: set there as well."""
    loops = [node for node in scope.nodes() if isinstance(node, ast.For)]
    for first, second in itertools.combinations(loops, 2):
        if second in ast.walk(first):
            continue
        passed = _bound(first.target) & _bound(second.target)
        bound, read = _bound(second), {node.id for node in ast.walk(second) if isinstance(node, ast.Name)}
        for row in first.body:
            match row:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in read - bound:
                    if passed.intersection(_names(value)) and name not in _names(value):
                        text = scope.program.source(row)
                        told = f"'{name}' is what the loop above left in its last pass, and is read here in every one"
                        at = second.body[0]
                        yield scope.before(at, f"{text}\n{scope.program.indent(at)}", told, text)


def _bound(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}


def unread_parameters(scope: Scope, scene: Scene) -> Iterator[Mistake]:
    """What a function is given and does not read: a group for its collectives, more of what it lists, or a count that something is divided by."""
    if len(scene.defined.get(scope.function.name, ())) > 1:
        return  # it may have parameters for the sake of others of its name
    read = {node.id for node in scope.nodes() if isinstance(node, ast.Name)}
    for name in scope.parameters:
        if name in read or name.startswith("_"):
            continue
        told = f"'{name}' is given to '{scope.function.name}', which never reads it"
        if "group" in name:
            yield from _grouped(scope, name, told)
        yield from _listed(scope, name, told)
        if _COUNTS.intersection(name.split("_")):
            yield from _counted(scope, name, told)


def _grouped(scope: Scope, name: str, told: str) -> Iterator[Mistake]:
    dist = distributed_name(scope.program)
    for call in scope.calls():
        match call.func:
            case ast.Attribute(value=ast.Name(id=module)) if module == dist and call.args:
                if not any(word.arg == "group" for word in call.keywords):
                    yield scope.one_more(call, f"group={name}", told)


def _listed(scope: Scope, name: str, told: str) -> Iterator[Mistake]:
    """More members of a list that the function gives back."""
    last = scope.function.body[-1]
    if not isinstance(last, ast.Return) or last.value is None:
        return
    values = scope.program.assigned(scope.function)
    for read in dict.fromkeys(node.id for node in ast.walk(last.value) if isinstance(node, ast.Name)):
        if any(isinstance(value, ast.List | ast.ListComp) for value in values.get(read, ())):
            line = f"{read} += {name}\n{scope.program.indent(last)}"
            yield scope.before(last, line, told, f"{read} += {name}")


def _counted(scope: Scope, name: str, told: str) -> Iterator[Mistake]:
    """A summand divided by a count."""
    for node in scope.nodes():
        value = node.value if isinstance(node, ast.Assign | ast.Return) else None
        for part in _summands(value) if value is not None else ():
            text = scope.program.source(part)
            whole = text if isinstance(part, _WHOLE) or _is_product(part) else f"({text})"
            yield scope.instead(part, f"{whole} / {name}", told, f"divide {shown(text)} by {name}")


def _is_product(part: ast.expr) -> bool:
    return isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mult | ast.Div)


def _summands(value: ast.expr) -> list[ast.expr]:
    """The terms of a sum, the last first; of anything else none."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add | ast.Sub):
        return [value.right, *(_summands(value.left) or [value.left])]
    return []


def uncalled(scope: Scope, scene: Scene) -> Iterator[Mistake]:
    """A function of the file that nothing names, in the place of one with its parameters, or of exactly what an expression is made of.

    What a function does no more than pass on to another of the file is what its callers ask for: they call another one, it is not written anew.
    """
    program = scope.program
    functions = {
        each.function.name: each
        for each in scene.scopes
        if each.program is program and each.function in program.tree.body
    }
    idle = [each for name, each in functions.items() if name not in scene.named and each.function is not scope.function]
    for call in scope.calls() if idle else ():
        names = _read(call)
        called = functions.get(call.func.id) if isinstance(call.func, ast.Name) else None
        passed_on = called is not None and scope.parameters == names and _is_passed_on(call, scope)
        for each in idle:
            text = ""
            if called is not None and len(each.parameters) > 1 and each.parameters == called.parameters:
                text = each.function.name + program.source(call).removeprefix(program.source(call.func))
            elif len(names) > 1 and each.parameters == names and not passed_on:
                text = f"{each.function.name}({', '.join(names)})"
            if text:
                told = f"'{shown(program.source(call))}' stands where '{shown(text)}' is needed, which nothing calls"
                yield scope.instead(call, text, told)


def _is_passed_on(call: ast.Call, scope: Scope) -> bool:
    """Whether a function gives back a call and does nothing else."""
    match scope.function.body:
        case [ast.Return(value=value)] | [ast.Expr(value=ast.Constant()), ast.Return(value=value)]:
            return value is call
    return False


def _read(call: ast.Call) -> list[str]:
    """The values that the arguments of a call name, once each; none where they are more than names."""
    found: dict[str, None] = {}
    for argument in (*call.args, *(word.value for word in call.keywords)):
        for item in argument.elts if isinstance(argument, ast.List | ast.Tuple) else [argument]:
            if isinstance(item, ast.Name) and not is_module(item):
                found[item.id] = None
            elif not isinstance(item, ast.Constant | ast.UnaryOp):
                return []
    return list(found)
