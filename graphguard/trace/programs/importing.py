"""The check that a request asks for, in the user's file: in its text, and as importing it declares it."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

from graphguard.ir import CheckRef, Span
from graphguard.trace.claims.api import MARK, Check, as_mesh
from graphguard.trace.claims.declared import COMPUTED, FoundCheck, checks_in, function_name, identifier
from graphguard.trace.source.errors import TracingError
from graphguard.trace.source.recompiled import order_everywhere
from graphguard.trace.source.sources import ProjectFiles, import_file


@dataclass(frozen=True, slots=True)
class Target:
    """A check file as a request names it: absolute ``file``, the project's ``root``, and unsaved texts by path."""

    file: str
    root: str
    overlay: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Found:
    """The check that was asked for: its function, its mesh, its place."""

    function: Callable[[Any], Any]
    mesh: dict[str, int]
    check: CheckRef


def find(
    target: Target, files: ProjectFiles, name: str, mesh: dict[str, int] | None, known: CheckRef | None = None
) -> Found:
    """Import the file, and find the check, whose :func:`reference` may be known; raises whatever the file raises, and ``TracingError`` where it has no such check."""
    found = _chosen(load(target, files), known or reference(target, name), mesh, _instance(target, name))
    order_everywhere(files.read)
    return found


def reference(target: Target, name: str) -> CheckRef:
    """A check's name and place as its file's text has them; the file itself where it does not tell."""
    for check in declared_in_text(target):
        if check.ref.name == name:
            return check.ref
    return CheckRef(identifier(target.file, name, target.root), name, Span(target.file, 1))


def declared_in_text(target: Target) -> list[FoundCheck]:
    """The checks of a file as far as its text tells them."""
    try:
        text = ProjectFiles(target.overlay).text(target.file).decode("utf-8-sig")
        return checks_in(target.file, text, target.root)
    except (OSError, SyntaxError, ValueError):  # importing the file says what is wrong with it, at the right place
        return []


def load(target: Target, files: ProjectFiles) -> ModuleType:
    """Import the file as the project's interpreter would in the project's folder."""
    os.chdir(target.root)
    files.install()
    return import_file(target.file, target.root, files)


def declared(module: ModuleType) -> list[tuple[str, Callable[[Any], Any], Check]]:
    """The checks that a module itself defines: an imported one belongs to its own file."""
    found = []
    for name, value in vars(module).items():
        check = getattr(value, MARK, None) if callable(value) else None
        if isinstance(check, Check) and getattr(value, "__module__", None) == module.__name__:
            found.append((name, value, check))
    return found


def _instance(target: Target, name: str) -> int | None:
    """Which combination of its params a check is, by the file's text, in whose words these are named."""
    if function_name(name) == name:
        return None
    return next((check.instance for check in declared_in_text(target) if check.ref.name == name), None)


def _chosen(module: ModuleType, known: CheckRef, mesh: dict[str, int] | None, instance: int | None) -> Found:
    name = function_name(known.name)
    checks = {own: (function, check) for own, function, check in declared(module)}
    if name not in checks:
        names = ", ".join(checks) or "none"
        raise TracingError(
            "trace-error", f"{os.path.basename(known.span.file)} has no check named {name!r}; it has {names}"
        )
    function, check = checks[name]
    chosen = check.meshes[0] if mesh is None else as_mesh(mesh)
    place = with_place(known, function)
    if instance is not None and instance < len(check.params):
        return Found(functools.partial(function, **check.params[instance]), chosen, place)
    if check.params:
        raise TracingError("trace-error", COMPUTED, place.span)
    return Found(function, chosen, place)


def with_place(known: CheckRef, function: Any) -> CheckRef:
    """A check's :func:`reference` with its place, its function being known."""
    if known.span.line == 1:  # declared in a way that reading the text does not show
        known = replace(known, span=Span(known.span.file, function.__code__.co_firstlineno))
    return known
