"""What mends a broken check where it is run and is no fix all the same: its message says so, as what was tried."""

from __future__ import annotations

from dataclasses import dataclass, replace

from graphguard.repair.writing.words import listed
from graphguard.report.diagnostics import Diagnostic, Fix

TRIED = "\ntried: "


@dataclass(frozen=True, slots=True)
class Tried:
    """An edit that was traced and proved on the mesh of a check, which nothing says is meant; ``left`` are the promises that are broken after it."""

    fix: Fix
    left: frozenset[str]

    def __str__(self) -> str:
        return f"{_placed(self.fix)}: it is right on this mesh; what it is on another one, the check does not say"


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An edit that gives the ranks the specification's tensors again, though ``promises`` stay broken for another defect, which nothing mends."""

    fix: Fix
    promises: tuple[str, ...]

    def __str__(self) -> str:
        verb = "is" if len(self.promises) == 1 else "are"
        return f"{_placed(self.fix)}: {listed(list(self.promises))} {verb} wrong after it, for another defect"


@dataclass(frozen=True, slots=True)
class InPart:
    """An edit that puts some outputs right, though ``left`` rest on the same line and stay wrong with everything that is offered: what makes up for a defect elsewhere looks like this."""

    fix: Fix
    mended: tuple[str, ...]
    left: tuple[str, ...]

    def __str__(self) -> str:
        rest, stay = ("rests", "stays") if len(self.left) == 1 else ("rest", "stay")
        is_right = "is" if len(self.mended) == 1 else "are"
        return (
            f"{_placed(self.fix)}: {listed(list(self.mended))} {is_right} right after it; {listed(list(self.left))}, "
            f"which {rest} on the same line, {stay} wrong"
        )


def with_tried(diagnostic: Diagnostic, tried: Tried | Unfinished | InPart | None) -> Diagnostic:
    """A diagnostic that says what was tried, if anything was."""
    return diagnostic if tried is None else replace(diagnostic, message=f"{diagnostic.message}{TRIED}{tried}")


def _placed(fix: Fix) -> str:
    return f"{fix.title} (line {fix.place.line})" if fix.place is not None else fix.title
