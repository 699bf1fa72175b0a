"""Source excerpts with the marked ranges underlined, in the manner of rustc."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from graphguard.ir.spans import Span
from graphguard.report.edits import ChangedLine
from graphguard.report.layout import Page, printable, width
from graphguard.report.sources import Sources

LONGEST_MARK = 6
CONTEXT = 1
_MORE = "..."


@dataclass(frozen=True, slots=True)
class Mark:
    """A range of an excerpt, what is said about it, and whether it is the place of the finding itself."""

    span: Span
    label: str
    primary: bool
    severity: str = "error"

    @property
    def end_line(self) -> int:
        """The last line of the range; a span without an end is one character."""
        return max(self.span.end_line, self.span.line)

    def columns(self, line: int, text: str) -> tuple[int, int]:
        """First column and the one after the last, in characters from 0, of the part of the range that lies on a line."""
        start = self.span.column - 1 if line == self.span.line else len(text) - len(text.lstrip())
        end = self.span.end_column - 1 if line == self.end_line and self.span.end_line else len(text.rstrip())
        if not self.span.end_line:
            end = start + 1
        start = min(max(start, 0), len(text))
        return start, max(start + 1, min(end, len(text)))


@dataclass(frozen=True, slots=True)
class Gutter:
    """The column of line numbers, of one width throughout a finding."""

    digits: int
    page: Page

    def row(self, number: int | None, text: str, sign: str = "|") -> str:
        """One line of an excerpt."""
        label = "" if number is None else str(number)
        frame = self.page.paint("frame", f"{label:>{self.digits}} {sign}")
        return f"{frame} {text}".rstrip() if text else frame

    def more(self) -> str:
        """The row that stands for lines left out."""
        return self.page.paint("frame", _MORE)

    def arrow(self, arrow: str, place: str) -> str:
        """The row that names a file: ``-->`` for the finding, ``:::`` for further files."""
        return " " * self.digits + self.page.paint("frame", arrow) + f" {place}"

    def note(self, kind: str, text: str) -> str:
        """A note below the excerpt."""
        return (
            " " * (self.digits + 1)
            + self.page.paint("frame", "=")
            + " "
            + self.page.paint("note", f"{kind}:")
            + f" {text}"
        )


def excerpt(marks: Sequence[Mark], sources: Sources, gutter: Gutter) -> list[str]:
    """Excerpts of every file that has a mark, the finding's own file first; no marks, no lines."""
    files: dict[str, list[Mark]] = {}
    for mark in dict.fromkeys(sorted(marks, key=lambda mark: not mark.primary)):  # two calls may stand at one place
        files.setdefault(mark.span.file, []).append(mark)
    rows: list[str] = []
    for number, (file, group) in enumerate(files.items()):
        first = group[0].span
        place = f"{sources.shown(file)}:{first.line}:{first.column}"
        rows.append(gutter.arrow("-->" if number == 0 else ":::", place))
        rows += _file_excerpt(group, sources, gutter)
    return rows


def _file_excerpt(marks: Sequence[Mark], sources: Sources, gutter: Gutter) -> Iterator[str]:
    lines = sources.lines(marks[0].span.file)
    shown = _shown_lines(marks, lines)
    if not shown:
        for mark in marks:
            if mark.label:
                yield gutter.note("note", mark.label)
        return
    yield gutter.row(None, "")
    for number, following in pairwise([*shown, 0]):
        text = lines[number - 1]
        here = [mark for mark in marks if mark.span.line <= number <= mark.end_line]
        yield from _marked_line(number, text, here, gutter)
        if following > number + 1:
            yield gutter.more()
    yield gutter.row(None, "")


def _shown_lines(marks: Sequence[Mark], lines: Sequence[str]) -> list[int]:
    """Every marked line and a little context; the middle of a long mark and a gap of more than one line are left out."""
    wanted: set[int] = set()
    for mark in marks:
        span = range(mark.span.line, mark.end_line + 1)
        wanted.update(span if len(span) <= LONGEST_MARK else (*span[: LONGEST_MARK - 2], *span[-2:]))
        if mark.primary:
            wanted.update(range(mark.span.line - CONTEXT, mark.span.line))
    shown = sorted(number for number in wanted if 0 < number <= len(lines))
    gaps = [a + 1 for a, b in pairwise(shown) if b == a + 2]
    while shown and not lines[shown[0] - 1].strip():
        shown.pop(0)
    return sorted({*shown, *gaps})


def _marked_line(number: int, text: str, marks: Sequence[Mark], gutter: Gutter) -> Iterator[str]:
    """A line of source and one row of carets for every mark on it."""
    ranges = [mark.columns(number, text) for mark in marks]
    encoding = gutter.page.encoding
    columns = [
        (width(printable(text[:start], encoding)), width(printable(text[:end], encoding))) for start, end in ranges
    ]
    first = min((start for start, _ in columns), default=0)
    room = gutter.page.width - gutter.digits - 3
    line, left = _window(printable(text, encoding), first, room)
    yield gutter.row(number, line)
    for mark, (start, end) in zip(marks, columns, strict=True):
        start, end = max(start - left, 0), min(end - left, room)
        sign, colour = ("^", mark.severity) if mark.primary else ("-", "frame")
        carets = gutter.page.paint(colour, sign * max(1, end - start))
        label = mark.label if number == mark.end_line else ""
        yield gutter.row(None, " " * start + carets + (f" {gutter.page.paint(colour, label)}" if label else ""))


def _window(text: str, column: int, room: int) -> tuple[str, int]:
    """The part of a line that fits, with the given column in it, and how many columns were cut at its left."""
    if width(text) <= room:
        return text, 0
    left = max(0, min(column - room // 3, width(text) - room))
    shown, position = [], 0
    for character in text:
        size = width(character)
        if left <= position and position + size <= left + room:
            shown.append(character)
        position += size
    line = "".join(shown)
    if left:
        line = _MORE + line[len(_MORE) :]
    if left + room < width(text):
        line = line[: -len(_MORE)] + _MORE
    return line, left


def change(hunks: Sequence[Sequence[ChangedLine]], gutter: Gutter) -> list[str]:
    """The lines that a fix removes and adds."""
    signs = {"kept": ("|", ""), "removed": ("-", "removed"), "added": ("+", "added")}
    rows: list[str] = [gutter.row(None, "")]
    for position, hunk in enumerate(hunks):
        if position:
            rows.append(gutter.more())
        for line in hunk:
            sign, colour = signs[line.kind]
            text = printable(line.text, gutter.page.encoding)
            rows.append(gutter.row(line.number, gutter.page.paint(colour, text) if colour else text, sign))
    return rows
