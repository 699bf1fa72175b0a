"""Edits made to texts: which can be made together, and what the files are after them."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Mapping
from dataclasses import replace

from graphguard.ir import Span
from graphguard.repair.text.frames import Read, Sources
from graphguard.repair.text.program import lines_of
from graphguard.repair.writing.source import Draft
from graphguard.report.diagnostics import TextEdit

_NEW_NAME = re.compile(r"^\s*(partial|gradient)(?: = )", re.MULTILINE)


def apart(before: tuple[TextEdit, ...], edits: tuple[TextEdit, ...]) -> bool:
    """Whether edits touch no text that others change."""

    def overlap(first: Span, second: Span) -> bool:
        start = max((first.line, first.column), (second.line, second.column))
        return first.file == second.file and start < min(_end(first), _end(second))

    return not any(overlap(one.span, other.span) for one in before for other in edits)


def renamed(draft: Draft, before: tuple[TextEdit, ...]) -> Draft:
    """A draft whose new name is another one than those that earlier edits make: each is new in the file as it is."""
    taken = {name for edit in before for name in _NEW_NAME.findall(edit.text)}
    own = {name for edit in draft.edits for name in _NEW_NAME.findall(edit.text)}
    for name in sorted(own & taken):
        other = next(new for count in itertools.count(2) if (new := f"{name}_{count}") not in taken)
        edits = tuple(replace(edit, text=re.sub(rf"\b{name}\b", other, edit.text)) for edit in draft.edits)
        draft = replace(draft, edits=edits, title=re.sub(rf"\b{name}\b", other, draft.title))
    return draft


def _end(span: Span) -> tuple[int, int]:
    return (span.end_line, span.end_column) if span.end_line else (span.line, span.column)


def applied(changes: tuple[TextEdit, ...], sources: Sources) -> dict[str, str] | None:
    """The texts after edits, or None where they would not parse."""
    return texts_after(changes, sources.read)


def texts_after(changes: tuple[TextEdit, ...], read: Read) -> dict[str, str] | None:
    """The same for whoever reads files by itself."""
    by_file: dict[str, list[TextEdit]] = {}
    for edit in dict.fromkeys(changes):
        by_file.setdefault(edit.span.file, []).append(edit)
    texts: dict[str, str] = {}
    for file, edits in by_file.items():
        text = read(file)
        if text is None:
            return None
        texts[file] = edited(text, edits)
        try:
            ast.parse(texts[file])
        except (SyntaxError, ValueError):
            return None
    return texts


def edited(text: str, edits: list[TextEdit]) -> str:
    """A text after edits that do not overlap; line ends stay as they are."""
    lines = lines_of(text)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))

    def offset(line: int, column: int) -> int:
        return min(starts[min(line - 1, len(lines))] + column - 1, len(text))

    newline = "\r\n" if "\r\n" in text else "\n"
    places: Mapping[TextEdit, tuple[int, int]] = {
        edit: (offset(edit.span.line, edit.span.column), offset(edit.span.end_line, edit.span.end_column))
        for edit in edits
    }
    for edit in sorted(edits, key=lambda item: places[item], reverse=True):
        start, stop = places[edit]
        text = text[:start] + edit.text.replace("\n", newline) + text[stop:]
    return text
