"""The output formats of ``graphguard check``, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphguard.report import concise, github, json_document, junit, sarif
from graphguard.report.diagnostics import Report
from graphguard.report.sources import Sources

Render = Callable[[Sequence[Report], Sources], str]

WHOLE: dict[str, Render] = {
    "concise": concise.render,
    "json": json_document.render,
    "sarif": sarif.render,
    "github": github.render,
    "junit": junit.render,
}
"""Formats that are written in one piece at the end; ``text`` is written check by check."""

WITH_RELATIONS = frozenset(("json",))
"""Formats that tell the relation of every tensor; ``text`` does where it is ``--verbose``."""

FOR_PEOPLE = ("text", "concise")
"""Formats in which files are named from the folder where the command was called."""

NAMES = ("text", *WHOLE)
