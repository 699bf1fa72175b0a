"""Names that are not there, told with the one that may have been meant."""

from __future__ import annotations

import difflib
import importlib.util
import sys
from collections.abc import Collection
from typing import Final

_NEAR: Final = 0.5
_BEGUN: Final = 2  # letters


def did_you_mean(name: str, known: Collection[str]) -> str:
    """``; did you mean 'tp'?`` where one of the known names is near, else nothing.

    A name is begun rightly more often than it is ended so: ``outputs`` is meant for ``out_relations``, though more of its letters are those of ``inputs``.
    """
    ranked = sorted(((_likeness(name.lower(), each.lower()), each) for each in known), reverse=True)
    near = next((each for (_, like), each in ranked if like >= _NEAR), None)
    return f"; did you mean {near!r}?" if near is not None else ""


def _likeness(name: str, known: str) -> tuple[bool, float]:
    """Whether two names begin alike, and how much of them is alike, from 0 to 1; where they begin so, the first word of one that is known is enough."""
    begun = name[:_BEGUN] == known[:_BEGUN]
    texts = (known, known.partition("_")[0]) if begun else (known,)
    return begun, max(difflib.SequenceMatcher(None, text, name).ratio() for text in texts)


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
