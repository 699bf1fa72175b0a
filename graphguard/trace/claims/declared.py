"""The checks that a file declares, read from its text: nothing of it is run."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from graphguard.ir import CheckRef, Span, Trouble
from graphguard.trace.claims.api import as_mesh
from graphguard.trace.claims.declarations import names_in


@dataclass(frozen=True, slots=True)
class FoundCheck:
    """A check as its file declares it.

    ``meshes`` is None where they are computed: only running the file tells.  A file that does not parse is found as one entry with a
    ``trouble`` and no name.
    """

    ref: CheckRef
    meshes: tuple[dict[str, int], ...] | None = None
    trouble: Trouble | None = None


def identifier(path: str, name: str, root: str) -> str:
    """``path::name`` relative to the project; a file outside of it keeps its absolute path."""
    relative = os.path.relpath(path, root)
    shown = path if relative.startswith("..") else Path(relative).as_posix()
    return f"{shown}::{name}" if name else shown


def checks_in(path: str, text: str, root: str, tree: ast.Module | None = None) -> list[FoundCheck]:
    """The checks that a file's text declares; raises ``SyntaxError``, unless its ``tree`` is known."""
    if not may_declare(text):
        return []
    tree = tree or ast.parse(text, path)
    names = names_in(tree, path, root)
    lines = text.splitlines()
    found = []
    for function in functions_of(tree.body):
        for decorator in filter(names.declares, function.decorator_list):
            span = name_span(path, function, lines)
            reference = CheckRef(identifier(path, function.name, root), function.name, span)
            call = names.declaration(decorator)
            found.append(FoundCheck(reference, None if call is None else _literal_meshes(call)))
    return found


def may_declare(text: str) -> bool:
    """Whether a file names GraphGuard, or has decorators, which may come from a file of the project that does."""
    return "graphguard" in text or "\n@" in text


def functions_of(body: list[ast.stmt]) -> Iterator[ast.FunctionDef]:
    """The functions that importing the file defines in the module itself."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef):
            yield statement
        elif isinstance(statement, ast.If | ast.Try | ast.With):
            yield from functions_of(statement.body)
            yield from functions_of(getattr(statement, "orelse", []))


def _literal_meshes(call: ast.Call) -> tuple[dict[str, int], ...] | None:
    value = next((one.value for one in call.keywords if one.arg == "mesh"), call.args[0] if call.args else None)
    if value is None:
        return None
    try:
        mesh = ast.literal_eval(value)
        meshes = tuple(as_mesh(one) for one in (mesh if isinstance(mesh, list | tuple) else [mesh]))
    except (ValueError, TypeError, RecursionError, MemoryError):
        return None
    return meshes or None


def name_span(path: str, function: ast.FunctionDef, lines: list[str]) -> Span:
    """Where a function is named."""
    line = lines[function.lineno - 1]
    match = re.compile(r"def\s+" + re.escape(function.name)).search(line)
    end = match.end() if match else len(line)
    return Span(path, function.lineno, end - len(function.name) + 1, function.lineno, end + 1)
