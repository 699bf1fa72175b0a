"""A stranger's program: the text with the bug, the repaired text, and the lines where the bug is.

Comments at the ends of lines say it, and are taken out of both texts: ``# fixed: TEXT`` (the repaired program has TEXT there; nothing, where there is none), ``# fault`` (the bug is there as
well, though the line stays), ``# near`` (a place that is no answer, but helps).  A line of its own ``# fixed, insert: TEXT`` is a line that only the repaired program has.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
ORDINARY = Path(__file__).parent / "ordinary"
"""Loops of a few steps as everybody writes them, each with one of the commonest mistakes."""
STYLES = Path(__file__).parent / "styles"
"""Models, training steps and inference in the styles of public frameworks, each with one small mistake of a kind that was made there."""
_MARK = re.compile(r"  # (fixed:( (?P<text>.*))?|fault|near)$")
_INSERT = re.compile(r"(?P<indent>\s*)# fixed, insert: (?P<text>.*)$")


@dataclass(frozen=True, slots=True)
class Program:
    """One program; ``lines`` are those of the text with the bug, counted from one."""

    path: Path
    buggy: str
    repaired: str
    lines: frozenset[int]
    rules: frozenset[str]

    @classmethod
    def of(cls, path: Path) -> Program:
        """Read a program; raises ``ValueError`` where it says nothing of its bug."""
        buggy: list[str] = []
        repaired: list[str] = []
        lines: set[int] = set()
        text = path.read_text(encoding="utf-8")
        for line in text.splitlines():
            if insert := _INSERT.match(line):
                repaired.append(insert["indent"] + insert["text"])
                lines.add(len(buggy))
                continue
            mark = _MARK.search(line)
            plain = line[: mark.start()] if mark else line
            buggy.append(plain)
            fixed = (mark["text"] or "") if mark and mark[1].startswith("fixed") else None
            repaired.append(plain if fixed is None else re.match(r"\s*", plain)[0] + fixed)  # type: ignore[index]
            if mark and mark[1] != "near":
                lines.add(len(buggy))
        rules = re.search(r"^Rule: (.*)$", text, re.MULTILINE)
        if rules is None or not lines or buggy == repaired:
            raise ValueError(f"{path}: a docstring with 'Rule:' and comments with '# fixed' are needed")
        said = frozenset(rule.strip() for rule in rules[1].split(","))
        return cls(path, "\n".join(buggy) + "\n", "\n".join(repaired) + "\n", frozenset(lines), said)


def programs(part: str = "", folder: Path = PROGRAMS) -> list[Program]:
    """All programs of a folder whose name has a part."""
    return [Program.of(path) for path in sorted(folder.glob("*.py")) if part in path.stem]
