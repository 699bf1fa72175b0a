"""What an entry of the lists is: one edit that spoils one right program, and what a diagnosis of it must be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


@dataclass(frozen=True, slots=True)
class Spoiler:
    """A short way to write the edits of one check: ``edit(name, old, new, rules, *places, nth=0, file=None)``."""

    program: str
    check: str

    def __call__(
        self, name: str, old: str, new: str, rules: str, *places: str, nth: int = 0, file: str | None = None
    ) -> SourceEdit:
        """One text becomes another."""
        other = self.program if file is None else f"{PROGRAMS}/{file}"
        title = f"{self.check}: {name}"
        return SourceEdit(
            title, self.program, self.check, other, old, new, tuple(rules.split()), places or (CHANGED,), nth
        )

    def removed(self, name: str, old: str, rules: str, *places: str, **options: Any) -> SourceEdit:
        """A text is not there."""
        return self(name, old, "", rules, *places, **options)

    def averaged(self, name: str, old: str, rules: str, *places: str, **options: Any) -> SourceEdit:
        """A collective takes the mean instead of the sum."""
        return self.within(name, old, "group=", "op=dist.ReduceOp.AVG, group=", rules, *places, **options)

    def followed(self, name: str, old: str, more: str, rules: str, *places: str, **options: Any) -> SourceEdit:
        """More comes behind a text."""
        return self(name, old, old + more, rules, *places, **options)

    def within(self, name: str, old: str, part: str, by: str, rules: str, *places: str, **options: Any) -> SourceEdit:
        """A part of a text becomes another; the rest only says where it is."""
        return self(name, old, old.replace(part, by, 1), rules, *places, **options)


def spoiler(program: str, check: str) -> Spoiler:
    """The edits of one check of a program, which is one of ours unless a folder is named."""
    return Spoiler(program if "/" in program else f"{PROGRAMS}/{program}", check)
