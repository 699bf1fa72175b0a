"""What a file calls ``graphguard.check``: imported, under another name, or by way of another file of the project."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

_HOMES = ("graphguard", "graphguard.trace.claims.api")
_EXPORTED = "check"


@dataclass(slots=True)
class Names:
    """The names in a module that stand for GraphGuard, for its ``check``, and for a ``check(mesh=...)`` that is kept to decorate with."""

    modules: set[str] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)
    decorators: dict[str, ast.Call] = field(default_factory=dict)

    def declaration(self, decorator: ast.expr) -> ast.Call | None:
        """The call of ``check`` that a decorator is; None where it is something else."""
        if isinstance(decorator, ast.Name):
            return self.decorators.get(decorator.id)
        return decorator if isinstance(decorator, ast.Call) and self.is_check(decorator.func) else None

    def declares(self, decorator: ast.expr) -> bool:
        """Whether a decorator is meant to declare a check: a call of ``check``, a kept one, or ``check`` itself, for which importing the file says what is missing."""
        return self.declaration(decorator) is not None or self.is_check(decorator)

    def called(self, value: ast.expr) -> ast.Call | None:
        """The call of ``check`` in ``check(mesh=...)(function)``; None for anything else."""
        return self.declaration(value.func) if isinstance(value, ast.Call) and value.args else None

    def is_check(self, function: ast.expr) -> bool:
        """Whether an expression names ``graphguard.check``."""
        if isinstance(function, ast.Name):
            return function.id in self.functions
        return (
            isinstance(function, ast.Attribute)
            and function.attr == _EXPORTED
            and isinstance(function.value, ast.Name)
            and function.value.id in self.modules
        )

    def assign(self, name: str, value: ast.expr) -> None:
        """``name = value``, at the top of the module."""
        call = self.declaration(value)
        if call is not None:
            self.decorators[name] = call
        elif self.is_check(_partly_applied(value)):
            self.functions.add(name)
        elif isinstance(value, ast.Name) and value.id in self.modules:
            self.modules.add(name)

    def take(self, other: Names, name: str, own: str) -> None:
        """``from other import name as own``."""
        if name in other.modules:
            self.modules.add(own)
        if name in other.functions:
            self.functions.add(own)
        if name in other.decorators:
            self.decorators[own] = other.decorators[name]

    def public(self) -> list[str]:
        """What ``import *`` takes."""
        return [name for name in (*self.modules, *self.functions, *self.decorators) if not name.startswith("_")]


def names_in(tree: ast.Module, path: str, root: str) -> Names:
    """The names in a file's tree.

    Imports of the project's own files are followed as far as these name GraphGuard themselves, or import all that others define.
    """
    return _Reading(root).names_in(tree, path)


class _Reading:
    """One look at a file and at what it imports: every file is read once, and gives what it has so far to those that it imports itself, as Python does."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._read: dict[str, Names] = {}

    def names_in(self, tree: ast.Module, path: str) -> Names:
        names = self._read[path] = Names()
        for node in _statements(tree):
            if isinstance(node, ast.Import):
                names.modules.update(one.asname or one.name for one in node.names if one.name == "graphguard")
            elif isinstance(node, ast.ImportFrom):
                self._import(names, node, path)
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        names.assign(target.id, node.value)
        return names

    def _import(self, names: Names, node: ast.ImportFrom, path: str) -> None:
        other = self._imported(node, path)
        for one in node.names:
            for name in other.public() if one.name == "*" else [one.name]:
                other_name = name if one.name == "*" else one.asname or name
                names.take(other, name, other_name)

    def _imported(self, node: ast.ImportFrom, path: str) -> Names:
        """The names in the file that an import names."""
        if not node.level and node.module in _HOMES:
            return Names(functions={_EXPORTED})
        file = _file_of(node, path, self._root)
        if file is None:
            return Names()
        if file not in self._read:
            tree = _tree_of(file)
            self._read[file] = Names() if tree is None else self.names_in(tree, file)
        return self._read[file]


def _file_of(node: ast.ImportFrom, path: str, root: str) -> str | None:
    """The project's file that an import names: beside the file, or below the root."""
    parts = (node.module or "").split(".") if node.module else []
    folder = Path(path).parent
    bases = [folder, Path(root)] if not node.level else [folder.joinpath(*[".."] * (node.level - 1))]
    for base in bases:
        for file in (base.joinpath(*parts).with_suffix(".py"), base.joinpath(*parts, "__init__.py")):
            if parts and file.is_file():
                return os.path.normpath(file)
    return None


def _tree_of(file: str) -> ast.Module | None:
    """The tree of a file that names GraphGuard or hands on all that others do.

    None for any other, and for one that cannot be read: running the check says what is wrong with it.
    """
    try:
        return _parsed(file, os.stat(file).st_mtime_ns)
    except (OSError, SyntaxError, ValueError):
        return None


@lru_cache(256)
def _parsed(file: str, _changed: int) -> ast.Module | None:
    data = Path(file).read_bytes()
    return ast.parse(data, file) if b"graphguard" in data or b"import *" in data else None


def _partly_applied(value: ast.expr) -> ast.expr:
    """The function of ``functools.partial(function, ...)``; anything else as it is."""
    if not isinstance(value, ast.Call) or not value.args:
        return value
    name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", None)
    return value.args[0] if name == "partial" else value


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Every statement in order, nested ones included; expressions, which are many, are not looked into."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for part in ("cases", "handlers", "orelse", "body"):
            waiting.extend(reversed(getattr(node, part, ())))
