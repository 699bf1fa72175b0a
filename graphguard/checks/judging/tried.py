"""What mends a broken check where it is run and is no fix all the same: its message says so, as what was tried."""

from __future__ import annotations

from dataclasses import dataclass, replace

from graphguard.report.diagnostics import Diagnostic, Fix

TRIED = "\ntried: "


@dataclass(frozen=True, slots=True)
class Tried:
    """An edit that was traced and proved on the mesh of a check, which nothing says is meant; ``left`` are the promises that are broken after it."""

    fix: Fix
    left: frozenset[str]

    def __str__(self) -> str:
        line = f" (line {self.fix.place.line})" if self.fix.place is not None else ""
        return f"{self.fix.title}{line}: it is right on this mesh; what it is on another one, the check does not say"


def with_tried(diagnostic: Diagnostic, tried: Tried | None) -> Diagnostic:
    """A diagnostic that says what was tried, if anything was."""
    return diagnostic if tried is None else replace(diagnostic, message=f"{diagnostic.message}{TRIED}{tried}")
