"""Applying the text edits of a fix, and showing what they change."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from graphguard.ir.spans import Span
from graphguard.report.diagnostics import Fix, TextEdit
from graphguard.report.sources import Sources, split_lines

_LINE_END = re.compile(r"\r\n|\n|\r")


class EditError(ValueError):
    """Edits overlap, or lie outside the text."""


@dataclass(frozen=True, slots=True)
class ChangedLine:
    """A line of a shown change: its number in the old text (removed) or in the new one (kept, added)."""

    kind: Literal["kept", "removed", "added"]
    number: int
    text: str


def apply_edits(text: str, edits: Sequence[TextEdit]) -> str:
    """The text after all edits, whose spans refer to the text before; raises :class:`EditError`."""
    starts = _line_starts(text)
    ranges = sorted(
        (*_offsets(edit.span, starts, len(text)), position, edit.text) for position, edit in enumerate(edits)
    )
    pieces, done = [], 0
    for start, end, _, new in ranges:
        if start < done:
            raise EditError("the edits of a fix overlap")
        pieces += [text[done:start], new]
        done = end
    return "".join([*pieces, text[done:]])


def changed_files(fix: Fix, sources: Sources) -> dict[str, tuple[str, str]]:
    """File name to text before and after a fix."""
    files: dict[str, list[TextEdit]] = {}
    for edit in fix.edits:
        files.setdefault(edit.span.file, []).append(edit)
    texts = {file: sources.text(file) for file in files}
    return {file: (texts[file], apply_edits(texts[file], edits)) for file, edits in files.items()}


def changed_lines(before: str, after: str) -> list[list[ChangedLine]]:
    """The hunks between two texts, with a line around each."""
    old, new = split_lines(before), split_lines(after)
    groups = difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(1)
    return [_hunk(group, old, new) for group in groups]


def _hunk(group: Sequence[tuple[str, int, int, int, int]], old: Sequence[str], new: Sequence[str]) -> list[ChangedLine]:
    hunk: list[ChangedLine] = []
    for tag, start, end, new_start, new_end in group:
        if tag == "equal":
            kept = [ChangedLine("kept", number + 1, new[number]) for number in range(new_start, new_end)]
            hunk += [line for line in kept if line.text.strip()]
            continue
        hunk += [ChangedLine("removed", number + 1, old[number]) for number in range(start, end)]
        hunk += [ChangedLine("added", number + 1, new[number]) for number in range(new_start, new_end)]
    return hunk


def _line_starts(text: str) -> list[int]:
    """Offset of the first character of every line; a line ends at ``\\n``, ``\\r\\n`` or ``\\r``, as for Python."""
    return [0, *(match.end() for match in _LINE_END.finditer(text))]


def _offsets(span: Span, starts: Sequence[int], length: int) -> tuple[int, int]:
    """Start and end of a span in characters from the text's beginning; an end of 0 means an insertion."""
    end_line, end_column = (span.end_line, span.end_column) if span.end_line else (span.line, span.column)
    if not (0 < span.line <= len(starts) + 1 and 0 < end_line <= len(starts) + 1):
        raise EditError(f"an edit at {span} lies outside the file")
    start = (starts[span.line - 1] if span.line <= len(starts) else length) + span.column - 1
    end = (starts[end_line - 1] if end_line <= len(starts) else length) + end_column - 1
    if not 0 <= start <= end <= length:
        raise EditError(f"an edit at {span} lies outside the file")
    return start, end
