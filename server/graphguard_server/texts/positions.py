"""Positions: lines as the protocol counts them, columns in the client's units.

Inside the server a position is a line from 0 and a column in characters.  Python's ``str.splitlines`` also splits at form feeds and
Unicode separators, which are no line ends to an editor or to Python's tokenizer; hence the splitter here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from lsprotocol import types

from graphguard.ir.spans import Span

Encoding = Literal["utf-8", "utf-16", "utf-32"]

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")


def encoding_of(negotiated: object) -> Encoding:
    """The encoding that client and server agreed on; UTF-16 where nothing was said."""
    known: dict[object, Encoding] = {"utf-8": "utf-8", "utf-32": "utf-32"}
    return known.get(getattr(negotiated, "value", negotiated), "utf-16")


def split_lines(text: str) -> tuple[str, ...]:
    r"""The lines of a text with their ends (``\n``, ``\r\n`` or ``\r``); the last line may be empty."""
    lines = []
    start = 0
    while True:
        match = _LINE.match(text, start)
        assert match is not None
        lines.append(match.group())
        if match.end() == len(text) and not match.group().endswith(("\r", "\n")):
            return tuple(lines)
        start = match.end()


def content(line: str) -> str:
    """A line without its end."""
    return line.rstrip("\r\n")


def units(text: str, encoding: Encoding) -> int:
    """Length of a text in units of the encoding."""
    if encoding == "utf-32":
        return len(text)
    if text.isascii():
        return len(text)
    if encoding == "utf-8":
        return len(text.encode("utf-8", "surrogatepass"))
    return len(text) + sum(char > "\uffff" for char in text)


def column_of_units(line: str, count: int, encoding: Encoding) -> int:
    """The column in characters at ``count`` units into a line; beyond its end, the end; inside a character, its start."""
    text = content(line)
    if encoding == "utf-32" or text.isascii():
        return min(count, len(text))
    passed = 0
    for column, char in enumerate(text):
        passed += units(char, encoding)
        if passed > count:
            return column
    return len(text)


@dataclass(frozen=True, slots=True)
class Ruler:
    """Converts between the characters of a text and the client's positions in it."""

    lines: Sequence[str]
    encoding: Encoding

    def position(self, line: int, column: int) -> types.Position:
        """The client's position of a line and column from 0; beyond the text, its end."""
        if line >= len(self.lines):
            line, column = len(self.lines) - 1, len(self.lines[-1])
        text = content(self.lines[line])
        return types.Position(line, units(text[:column], self.encoding))

    def range(self, span: Span) -> types.Range:
        """The client's range of a span; one without an end covers the rest of its line."""
        start = self.position(span.line - 1, span.column - 1)
        if span.end_line <= 0:
            line = min(span.line, len(self.lines)) - 1
            return types.Range(start, self.position(line, len(content(self.lines[line]))))
        return types.Range(start, self.position(span.end_line - 1, span.end_column - 1))

    def place(self, position: types.Position) -> tuple[int, int]:
        """Line and column, both from 0, of a client's position; clamped to the text."""
        if position.line >= len(self.lines):
            return len(self.lines) - 1, len(content(self.lines[-1]))
        return position.line, column_of_units(self.lines[position.line], position.character, self.encoding)
