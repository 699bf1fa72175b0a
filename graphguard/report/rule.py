"""What the registry knows of one rule."""

from __future__ import annotations

from dataclasses import dataclass

from graphguard.report.diagnostics import Severity


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the registry: its slug, its default level and the texts that explain it.

    ``summary`` is one sentence; ``what`` and ``why`` are Markdown paragraphs; ``wrong`` and ``right`` are Python.
    """

    name: str
    severity: Severity
    summary: str
    what: str
    why: str
    wrong: str
    right: str
