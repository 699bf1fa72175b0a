"""Names that are not there, told with the one that may have been meant."""

from __future__ import annotations

import difflib
import importlib.util
import sys
from collections.abc import Collection


def did_you_mean(name: str, known: Collection[str]) -> str:
    """``; did you mean 'tp'?`` where one of the known names is near, else nothing."""
    lowered = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), lowered, 1, 0.5)
    return f"; did you mean {lowered[near[0]]!r}?" if near else ""


def no_such_axis(axis: str, mesh: Collection[str]) -> str:
    """That the mesh of a check has no axis of a name, and which it has."""
    return f"the mesh has no axis {axis!r}, only {', '.join(map(repr, mesh))}{did_you_mean(axis, mesh)}"


def absent_package(error: BaseException) -> str:
    """Which interpreter lacks a package that an import asks for, and what to do; empty for any other error."""
    if not isinstance(error, ModuleNotFoundError) or not error.name or error.name.partition(".")[0] != error.name:
        return ""
    try:
        there = importlib.util.find_spec(error.name) is not None
    except (ImportError, ValueError):
        there = False
    if there:
        return ""
    return (
        f"note: {sys.executable} has no package {error.name!r}\n"
        "fix: install it there, or set python in [tool.graphguard] to the interpreter that has it"
    )
