"""What callers give: a parameter that is left out although its name is in sight, a flag, what another call of the same function gets."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from graphguard.repair.nearby.scene import Mistake, Scene, Scope
from graphguard.repair.text.program import is_module
from graphguard.repair.text.vocabulary import called_name

_FLAGS: Final = ("is_", "use_", "has_", "enable", "disable", "no_")


def left_out(scope: Scope, scene: Scene) -> Iterator[Mistake]:
    """Parameters with a default that a call leaves to it, all whose names are in sight there; at all such calls of a function as well."""
    found = [made for call in scope.calls() if (made := _lacking(call, scope, scene)) is not None]
    if len(found) > 1:
        edits = tuple(edit for each in found for edit in each.edits)
        yield Mistake(found[0].told, f"{found[0].title} here and below", edits, found[0].place)
    yield from found


def _lacking(call: ast.Call, scope: Scope, scene: Scene) -> Mistake | None:
    """All the parameters that a call leaves out and that are in sight by name."""
    if any(word.arg is None for word in call.keywords):
        return None
    known = _known(call, scope, scene)
    for callee in scene.callees(call):
        if callee.function is scope.function:
            continue
        taken = bound(call, callee)
        found = {name: known[name] for name in optional(callee) if name not in taken and name in known}
        if found:
            names = " and ".join(f"'{text}'" for text in found.values())
            told = f"{names} {'are' if len(found) > 1 else 'is'} in sight and not given to '{called_name(call)}', which has a default"
            return scope.one_more(call, ", ".join(f"{name}={text}" for name, text in found.items()), told)
    return None


def _known(call: ast.Call, scope: Scope, scene: Scene) -> dict[str, str]:
    """What is in sight of a call by the name of a parameter: as a name, as what the object keeps, as what the function reads of another under that name or its plural, or as what another call gives to a parameter of that name."""
    found = {
        name: scope.program.source(node)
        for node in scope.nodes()
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and not is_module(node)
        for name in (node.attr, node.attr.removesuffix("s"))
    }
    for other in scope.calls():
        for callee in scene.callees(other) if other is not call else ():
            for name, argument in bound(other, callee).items():
                if isinstance(argument, ast.Name | ast.Attribute):
                    found[name] = scope.program.source(argument)
    return {
        **found,
        **{name: f"self.{name}" for name in scope.kept()},
        **{name: name for name in scope.bound_before(call)},
    }


def flags(scope: Scope, scene: Scene) -> Iterator[Mistake]:
    """Another value of a flag: decided by what decides another flag of the call, else turned."""
    for call in scope.calls():
        for word in () if scene.siblings(scope) else call.keywords:
            if word.arg and isinstance(word.value, ast.Constant) and isinstance(word.value.value, bool):
                text = str(not word.value.value)
                told = f"'{word.arg}' is {word.value.value} where {text} is needed"
                yield scope.instead(word.value, text, told, f"{word.arg}={text}")
        for callee in scene.callees(call)[:1]:
            known = bound(call, callee)
            for name, value in optional(callee).items():
                if name not in known and isinstance(value, ast.Constant) and isinstance(value.value, bool):
                    told = f"'{name}' is left at {value.value} where {not value.value} is needed"
                    for text in (*_deciding(call, scope), str(not value.value)):
                        yield scope.one_more(call, f"{name}={text}", told)


def _deciding(call: ast.Call, scope: Scope) -> list[str]:
    """The flags of the function around a call that the call's own flags are made of."""
    own = {each for each in scope.parameters if each.startswith(_FLAGS)}
    named = (node.id for word in call.keywords for node in ast.walk(word.value) if isinstance(node, ast.Name))
    return list(dict.fromkeys(name for name in named if name in own))


def as_another_call(scope: Scope, scene: Scene) -> Iterator[Mistake]:
    """An argument behind the first that another call of the same function gets in the same function."""
    calls = [call for call in scope.calls() if scene.callees(call)]
    for call in calls:
        for other in calls:
            if other is call or called_name(other) != called_name(call) or len(other.args) != len(call.args):
                continue
            for mine, its in zip(call.args[1:], other.args[1:], strict=True):
                text, now = scope.program.source(its), scope.program.source(mine)
                if text != now and _is_chosen(its) and _is_chosen(mine):
                    told = f"'{called_name(call)}' gets '{now}' here, where '{text}' is needed, as in another call"
                    yield scope.instead(_definition(mine, scope) or mine, text, told)


def as_sibling(scope: Scope, scene: Scene) -> Iterator[Mistake]:
    """Another function called that does the same with another constant: what a function is for is not to be changed in it."""
    for call in scope.calls():
        name, head = called_name(call), call.func
        for callee in scene.callees(call)[:1]:
            for other in scene.siblings(callee):
                text = other.function.name
                if isinstance(head, ast.Attribute):
                    text = f"{scope.program.source(head.value)}.{text}"
                yield scope.instead(head, text, f"'{name}' is called where '{other.function.name}' is needed")


def _is_chosen(argument: ast.expr) -> bool:
    return isinstance(argument, ast.Name | ast.Attribute | ast.Call | ast.Tuple)


def _definition(argument: ast.expr, scope: Scope) -> ast.expr | None:
    """The only value that a name stands for."""
    values = scope.program.assigned(scope.function).get(argument.id, []) if isinstance(argument, ast.Name) else []
    return values[0] if len(values) == 1 else None


def optional(callee: Scope) -> dict[str, ast.expr]:
    """The parameters of a function that have a default."""
    arguments = callee.function.args
    named = [*arguments.posonlyargs, *arguments.args]
    pairs = list(zip(named[len(named) - len(arguments.defaults) :], arguments.defaults, strict=True))
    pairs += [(name, value) for name, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value]
    return {name.arg: value for name, value in pairs}


def bound(call: ast.Call, callee: Scope) -> dict[str, ast.expr]:
    """The parameters that a call gives, each with what it gives."""
    arguments = callee.function.args
    named = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    names = named[1:] if named[:1] in (["self"], ["cls"]) else named
    words = {word.arg: word.value for word in call.keywords if word.arg}
    return {**dict(zip(names, call.args, strict=False)), **words}
