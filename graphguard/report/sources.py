"""The text of source files, for excerpts: from disk, or from an editor's unsaved buffers."""

from __future__ import annotations

import os
import tokenize
from dataclasses import dataclass, field
from pathlib import Path

from graphguard.ir.capture import CheckRef


@dataclass(slots=True)
class Sources:
    """Lines of source files by the file names that spans carry.

    ``root`` resolves relative names.  ``base`` is the folder that names are shown relative to, the root unless it is given.  ``texts`` overrides files (unsaved buffers, code known only to linecache).  A file that cannot be
    read has no lines: a report is shown without an excerpt rather than not at all.
    """

    root: Path = field(default_factory=Path.cwd)
    texts: dict[str, str] = field(default_factory=dict)
    base: Path | None = None
    _lines: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def lines(self, file: str) -> tuple[str, ...]:
        """The lines of a file without their ends; empty where it cannot be read."""
        if file not in self._lines:
            self._lines[file] = split_lines(self.text(file))
        return self._lines[file]

    def text(self, file: str) -> str:
        """The whole text of a file; empty where it cannot be read."""
        if file in self.texts:
            return self.texts[file]
        return read_source(self.root / file)

    def line(self, file: str, number: int) -> str | None:
        """One line, counted from 1; None where there is none."""
        lines = self.lines(file)
        return lines[number - 1] if 0 < number <= len(lines) else None

    def named(self, file: str) -> str:
        """The file's name within the project, wherever this runs: relative to the root where it lies below it."""
        path = Path(file)
        if path.is_absolute() and path.is_relative_to(self.root):
            return path.relative_to(self.root).as_posix()
        return file

    def shown(self, file: str) -> str:
        """The file's name as people read it: one of the project's is relative to the base."""
        name = self.named(file)
        if self.base is None or Path(name).is_absolute():
            return name
        return Path(os.path.relpath(self.root / name, self.base)).as_posix()

    def shown_check(self, check: CheckRef) -> str:
        """A check as it can be given to the command line in the base folder."""
        if self.base in (None, self.root) or not check.name:
            return check.id
        return f"{self.shown(check.span.file)}::{check.name}"


def split_lines(text: str) -> tuple[str, ...]:
    """Lines as Python counts them: a form feed or a Unicode line separator ends none."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return tuple(lines[:-1] if lines[-1] == "" else lines)


def read_source(path: Path) -> str:
    """A Python file in its declared encoding, undecodable bytes replaced; empty where it cannot be read."""
    try:
        with path.open("rb") as stream:
            try:
                encoding, _ = tokenize.detect_encoding(stream.readline)
            except SyntaxError:
                encoding = "utf-8"
        return path.read_text(encoding=encoding, errors="replace")
    except (OSError, ValueError):
        return ""
