"""What mends a broken check where it is run and is no fix all the same: its message says so, as what was tried."""

from __future__ import annotations

from dataclasses import dataclass, replace

from graphguard.checks.judging.requests import CheckRequest
from graphguard.repair.writing.words import listed
from graphguard.report.diagnostics import Diagnostic, Fix
from graphguard.report.folding import mesh_text

TRIED = "\ntried: "


@dataclass(frozen=True, slots=True)
class Tried:
    """An edit that was traced and proved on the mesh of a check, which nothing says is meant; ``left`` are the promises that are broken after it.

    ``refuted`` is the check on a mesh on which the program is wrong with it, and without it too; None where no other mesh says anything.
    """

    fix: Fix
    left: frozenset[str]
    refuted: CheckRequest | None = None

    def __str__(self) -> str:
        line = f" (line {self.fix.place.line})" if self.fix.place is not None else ""
        elsewhere = (
            "what it is on another one, the check does not say"
            if self.refuted is None
            else f"on {mesh_text(self.refuted.mesh or {})} the program is wrong with it as without it"
        )
        return f"{self.fix.title}{line}: it is right on this mesh; {elsewhere}"


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An edit that gives the ranks the specification's tensors again, though ``promises`` stay broken for another defect, which nothing mends."""

    fix: Fix
    promises: tuple[str, ...]

    def __str__(self) -> str:
        line = f" (line {self.fix.place.line})" if self.fix.place is not None else ""
        verb = "is" if len(self.promises) == 1 else "are"
        return f"{self.fix.title}{line}: {listed(list(self.promises))} {verb} wrong after it, for another defect"


def with_tried(diagnostic: Diagnostic, tried: Tried | Unfinished | None) -> Diagnostic:
    """A diagnostic that says what was tried, if anything was."""
    return diagnostic if tried is None else replace(diagnostic, message=f"{diagnostic.message}{TRIED}{tried}")
