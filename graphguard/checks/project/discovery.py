"""Finds ``@gg.check`` functions by reading files, without running anything."""

from __future__ import annotations

import ast
import os
import tokenize
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path

from graphguard.checks.project.configuration import Configuration
from graphguard.ir import CheckRef, Span, Trouble
from graphguard.trace.claims.declarations import names_in
from graphguard.trace.claims.declared import (
    FoundCheck,
    assignments_of,
    checks_in,
    function_name,
    functions_of,
    identifier,
    may_declare,
    name_span,
    span_of,
)

_SKIPPED_FOLDERS = frozenset(("node_modules", "site-packages", "__pycache__", "build", "dist"))


class DiscoveryError(ValueError):
    """A path or a check that was asked for does not exist; the message is for the user."""


def discover(paths: Sequence[Path], configuration: Configuration) -> list[FoundCheck]:
    """The checks in files, folders and ``file.py::name`` selectors; without any, those of the configured patterns.

    Raises ``DiscoveryError``.
    """
    found: list[FoundCheck] = []
    for path in paths or _configured(configuration):
        found += _selected(str(path), configuration.root)
    unique = {(check.ref.id, check.ref.span): check for check in found}
    return list(unique.values())


def _configured(configuration: Configuration) -> list[Path]:
    files = {file for pattern in configuration.checks for file in configuration.root.glob(pattern)}
    return sorted(file for file in files if file.is_file())


def unreached(paths: Sequence[Path], configuration: Configuration) -> list[CheckRef]:
    """Functions decorated as checks that importing their files does not define in the module: those within a function or a class."""
    files = [_absolute(str(path).partition("::")[0]) for path in paths] or _configured(configuration)
    found: list[CheckRef] = []
    for file in files:
        for inner in python_files(file) if file.is_dir() else [file]:
            found += _unreached_in(inner, str(configuration.root))
    return found


def _unreached_in(file: Path, root: str) -> list[CheckRef]:
    path, data = str(file), file.read_bytes()
    try:
        encoding, _ = tokenize.detect_encoding(BytesIO(data).readline)
        text = data.decode(encoding)
        if not may_declare(text):
            return []
        tree = ast.parse(text, path)
    except (SyntaxError, ValueError):
        return []  # told as a file that cannot be read
    names, lines, own = names_in(tree, path, root), text.splitlines(), set(functions_of(tree.body))
    assigned = {statement.value for statement in assignments_of(tree.body)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node not in own and any(map(names.declares, node.decorator_list)):
            found.append(CheckRef(identifier(path, node.name, root), node.name, name_span(path, node, lines)))
        elif isinstance(node, ast.Call) and node not in assigned and names.called(node) is not None:
            name = ast.unparse(node.args[0])
            found.append(CheckRef(identifier(path, name, root), name, span_of(path, node.func, lines)))
    return found


def _selected(selector: str, root: Path) -> list[FoundCheck]:
    path, _, name = selector.partition("::")
    file = _absolute(path)
    if file.is_dir() and not name:
        return [check for inner in python_files(file) for check in _in_file(inner, root)]
    if not file.is_file():
        raise DiscoveryError(f"no such file or folder: {path}")
    checks = _in_file(file, root)
    if not name:
        return checks
    chosen = [
        check for check in checks if name in (check.ref.name, function_name(check.ref.name)) or not check.ref.name
    ]
    if not chosen:
        names = ", ".join(check.ref.name for check in checks)
        unreached = _unreached_in(file, str(root))  # what a loop or a function makes may have the name by assignment
        why = "".join(
            f"; {inner_text(each)}" for each in [*(one for one in unreached if one.name == name), *unreached][:1]
        )
        raise DiscoveryError(f"{path} has no check named {name!r}; it has {names or 'none'}{why}")
    return chosen


def _absolute(path: str) -> Path:
    """Without ``..`` in it, and with symbolic links as they are: a check is named after the file that was asked for."""
    return Path(os.path.abspath(path))


def inner_text(check: CheckRef) -> str:
    """Why a function that is decorated as a check is none."""
    return (
        f"{check.name!r} on line {check.span.line} stands within a function, a class or a loop: declare it in the module itself,"
        " under a name of its own; gg.check(params=...) makes one check of every value"
    )


def python_files(folder: Path) -> Iterator[Path]:
    """The Python files in a folder and those below it that are not hidden, installed or built."""
    for inner, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED_FOLDERS)
        yield from (Path(inner, name) for name in sorted(files) if name.endswith(".py"))


def _in_file(file: Path, root: Path) -> list[FoundCheck]:
    path = str(file)
    data = file.read_bytes()
    if not may_declare(data.decode("latin-1")):
        return []
    try:
        encoding, _ = tokenize.detect_encoding(BytesIO(data).readline)
        return checks_in(path, data.decode(encoding), str(root))
    except (SyntaxError, ValueError) as error:
        if b"graphguard" not in data:
            return []
        return [_unreadable(path, root, error)]


def _unreadable(path: str, root: Path, error: SyntaxError | ValueError) -> FoundCheck:
    if isinstance(error, SyntaxError):
        span = Span(path, error.lineno or 1, error.offset or 1, error.end_lineno or 0, error.end_offset or 0)
        message = f"SyntaxError: {error.msg}"
    else:
        span, message = Span(path, 1), f"this file cannot be read as Python: {error}"
    reference = CheckRef(identifier(path, "", str(root)), "", span)
    return FoundCheck(reference, trouble=Trouble("trace-error", message, span))
