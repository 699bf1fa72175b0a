"""Where a value comes from, as the text tells: assignments, attributes, arguments, what functions give back, and what decides whether these run."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from graphguard.ir import Span
from graphguard.repair.nearby.arguments import bound, optional
from graphguard.repair.nearby.scene import Scene, Scope
from graphguard.repair.text.program import Function, Program
from graphguard.repair.text.vocabulary import called_name

_FAR: Final = 6  # definitions between a value and what rests on it
_MANY: Final = 6  # definitions of one name, of which nothing tells which is meant


def behind(scene: Scene, program: Program, value: ast.expr) -> dict[ast.AST, int]:
    """The expressions that a value may come from, and how many definitions lie between."""
    slice_ = _Slice(scene)
    slice_.add(program, value, 0)
    return {node: away for node, away in slice_.parts().items() if away}


def rested_on(scene: Scene, places: Sequence[Span]) -> dict[ast.AST, int]:
    """The expressions that the statements at places may rest on, their own among them."""
    slice_ = _Slice(scene)
    for place in places:
        program = next((each.program for each in scene.scopes if each.program.file == place.file), None)
        value = program.expression(place) if program is not None else None
        statement = program.statement(value) if program is not None and value is not None else None
        if program is not None and statement is not None and not isinstance(statement, Function | ast.ClassDef):
            slice_.add(program, statement, 0)
    return slice_.parts()


@dataclass(slots=True)
class _Slice:
    """The values that names lead to from places, by assignments, attributes, arguments, what functions give back, and what decides whether they run."""

    scene: Scene
    waiting: list[tuple[Program, ast.AST, int]] = field(default_factory=list)
    seen: set[ast.AST] = field(default_factory=set)

    def found(self) -> Iterator[tuple[ast.AST, int]]:
        """What it comes to, with the definitions that lie between."""
        for program, node, away in self.waiting:
            yield node, away
            if away < _FAR:
                for each, other in self._behind(program, node):
                    self.add(each, other, away + 1)

    def parts(self) -> dict[ast.AST, int]:
        """What it comes to with all that this is made of."""
        parts: dict[ast.AST, int] = {}
        for node, away in self.found():
            for head in _heads(node):
                for part in ast.walk(head):
                    parts.setdefault(part, away)
        return parts

    def add(self, program: Program, node: ast.AST, away: int) -> None:
        """Go on from an expression or a statement as well."""
        if node not in self.seen:
            self.seen.add(node)
            self.waiting.append((program, node, away))

    def _behind(self, program: Program, node: ast.AST) -> Iterator[tuple[Program, ast.AST]]:
        """The values that something reads, and the questions that decide whether it runs."""
        for each in (part for head in _heads(node) for part in ast.walk(head)):
            match each:
                case ast.Name(id=name, ctx=ast.Load()):
                    yield from self._named(program, each, name)
                case ast.Attribute(attr=name, ctx=ast.Load()):
                    yield from self._kept(name)
                case ast.Call():
                    yield from self._given_back(each)
        for outer in program.ancestors(node):
            if isinstance(outer, Function):
                break
            if isinstance(outer, ast.If | ast.IfExp | ast.While):
                yield program, outer.test
            elif isinstance(outer, ast.For):
                yield program, outer.iter

    def _named(self, program: Program, read: ast.Name, name: str) -> Iterator[tuple[Program, ast.AST]]:
        function = program.function(read)
        for outer in program.functions(read):
            values = program.assigned(outer).get(name, ())
            yield from ((program, value) for value in values[:_MANY] if value is not program.parents.get(read))
            if function is outer and values:
                return
        if function is not None:
            scope = next((each for each in self.scene.scopes if each.function is function), None)
            if scope is not None and name in scope.parameters:
                yield from self._arguments(scope, name)

    def _arguments(self, scope: Scope, name: str) -> Iterator[tuple[Program, ast.AST]]:
        """What callers give for a parameter, or its default."""
        klass = scope.klass
        called = klass.name if klass is not None and scope.function.name == "__init__" else scope.function.name
        calls = ((each.program, call) for each in self.scene.scopes for call in each.calls())
        given = [(program, bound(call, scope).get(name)) for program, call in calls if called_name(call) == called]
        found = [(program, value) for program, value in given if value is not None][:_MANY]
        default = optional(scope).get(name)
        yield from found or ([(scope.program, default)] if default is not None else [])

    def _kept(self, name: str) -> Iterator[tuple[Program, ast.AST]]:
        """What objects keep under a name, and what properties give."""
        rows = [
            (scope.program, node.value)
            for scope in self.scene.scopes
            for node in scope.nodes()
            if isinstance(node, ast.Assign)
            and any(isinstance(target, ast.Attribute) and target.attr == name for target in node.targets)
        ]
        yield from rows if len(rows) <= _MANY else ()
        for scope in self.scene.defined.get(name, ()):
            decorators = scope.function.decorator_list
            if any(isinstance(each, ast.Name) and each.id == "property" for each in decorators):
                yield from _returned(scope)

    def _given_back(self, call: ast.Call) -> Iterator[tuple[Program, ast.AST]]:
        for scope in self.scene.callees(call)[:_MANY]:
            if scope.function.name != "__init__":
                yield from _returned(scope)


def _heads(node: ast.AST) -> list[ast.AST]:
    """What a statement reads itself, the statements in it apart."""
    match node:
        case ast.If() | ast.While():
            return [node.test]
        case ast.For():
            return [node.iter]
        case ast.With():
            return [item.context_expr for item in node.items]
        case ast.Try():
            return []
    return [node]


def _returned(scope: Scope) -> Iterator[tuple[Program, ast.AST]]:
    """What a function gives back."""
    return ((scope.program, node.value) for node in scope.nodes() if isinstance(node, ast.Return) and node.value)
