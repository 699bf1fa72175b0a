"""What an entry of the lists is: one edit that spoils one right program, and what a diagnosis of it must be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAMS = "benchmarks/mutants/programs"
CHANGED = "*"


@dataclass(frozen=True, slots=True)
class SourceEdit:
    """``old`` (which occurs in ``file``) becomes ``new`` at its ``occurrence``; ``rules`` that a finding may name, the best first.

    ``place`` is text that stands on the line where a repair belongs, in the spoiled source; several are allowed where a developer
    could as well mend another line.  ``"*"`` stands for the lines of the new text itself.
    """

    name: str
    program: str
    check: str
    file: str
    old: str
    new: str
    rules: tuple[str, ...]
    place: tuple[str, ...]
    occurrence: int = 0

    def spoiled(self) -> str:
        """The text of the spoiled file; raises ``ValueError`` where the edit does not fit it."""
        text, at = (ROOT / self.file).read_text(), self._start()
        return text[:at] + self.new + text[at + len(self.old) :]

    def places(self) -> frozenset[tuple[str, int]]:
        """The files and lines where a finding belongs; raises ``ValueError`` where a place is on none."""
        texts = {self.program: (ROOT / self.program).read_text(), self.file: self.spoiled()}
        found: set[tuple[str, int]] = set()
        for place in self.place:
            here = {
                (file, number)
                for file, text in texts.items()
                for number, line in enumerate(text.splitlines(), 1)
                if place in line
            }
            if place == CHANGED:
                here = {(self.file, line) for line in self._changed(texts[self.file])}
            if not here:
                raise ValueError(f"{self.name}: {place!r} is on no line")
            found |= here
        return frozenset(found)

    def _changed(self, text: str) -> range:
        start = self._start() + len(self.new) - len(self.new.lstrip())
        stop = self._start() + len(self.new.rstrip())
        return range(text.count("\n", 0, start) + 1, text.count("\n", 0, stop) + 2)

    def _start(self) -> int:
        text, at = (ROOT / self.file).read_text(), -1
        for _ in range(self.occurrence + 1):
            at = text.index(self.old, at + 1)
        return at


def spoiler(program: str, check: str) -> Callable[..., SourceEdit]:
    """A short way to write the edits of one check: ``edit(name, old, new, rules, *places, nth=0, file=None)``."""
    where = program if "/" in program else f"{PROGRAMS}/{program}"

    def edit(
        name: str, old: str, new: str, rules: str, *places: str, nth: int = 0, file: str | None = None
    ) -> SourceEdit:
        other = where if file is None else f"{PROGRAMS}/{file}"
        return SourceEdit(
            f"{check}: {name}", where, check, other, old, new, tuple(rules.split()), places or (CHANGED,), nth
        )

    return edit
