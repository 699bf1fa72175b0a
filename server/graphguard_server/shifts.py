"""Where a place of an older text is in a newer one.

Results are computed on a snapshot.  When the text changes only in comments or layout, every token keeps its meaning and places follow the
tokens exactly; after any other edit places follow the unchanged lines, and the results are marked stale.
"""

from __future__ import annotations

import ast
import bisect
import difflib
import functools
import hashlib
import io
import tokenize
from collections.abc import Callable
from typing import Final, TypeAlias

from graphguard.ir.spans import Span
from graphguard_server.positions import split_lines

Move: TypeAlias = Callable[[int, int], tuple[int, int]]

_SKIPPED: Final = frozenset(
    {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
        tokenize.ENCODING,
    }
)
_PRAGMA: Final = "# graphguard:"


@functools.lru_cache(maxsize=512)
def meaning(text: str) -> str | None:
    """A digest of what a Python text means: comments and layout left out, our own pragmas kept; None where it does not parse."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    pragmas = "\n".join(line.partition(_PRAGMA)[2] + f"@{number}" for number, line in _pragmas(text))
    return hashlib.sha256((ast.dump(tree) + pragmas).encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _pragmas(text: str) -> list[tuple[int, str]]:
    """Lines that hold a pragma, numbered among the lines that hold code, so that comments elsewhere do not matter."""
    if _PRAGMA not in text:
        return []
    found = []
    number = 0
    for line in split_lines(text):
        stripped = line.strip()
        if _PRAGMA in line:
            found.append((number, stripped))
        if stripped and not stripped.startswith("#"):
            number += 1
    return found


def shift(old: str, new: str) -> Move:
    """The map from lines and columns (from 0) of ``old`` to those of ``new``."""
    if old == new:
        return lambda line, column: (line, column)
    if meaning(old) is not None and meaning(old) == meaning(new):
        by_tokens = _by_tokens(old, new)
        if by_tokens is not None:
            return by_tokens
    return _by_lines(old, new)


def moved(span: Span, move: Move) -> Span:
    """A span carried along by a shift."""
    line, column = move(span.line - 1, span.column - 1)
    if span.end_line <= 0:
        return Span(span.file, line + 1, column + 1)
    end_line, end_column = move(span.end_line - 1, span.end_column - 1)
    if (end_line, end_column) < (line, column):
        end_line, end_column = line, column
    return Span(span.file, line + 1, column + 1, end_line + 1, end_column + 1)


@functools.lru_cache(maxsize=64)
def _tokens(text: str) -> tuple[tuple[str, tuple[int, int], tuple[int, int]], ...]:
    return tuple(
        (token.string, (token.start[0] - 1, token.start[1]), (token.end[0] - 1, token.end[1]))
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in _SKIPPED
    )


def _by_tokens(old: str, new: str) -> Move | None:
    try:
        before, after = _tokens(old), _tokens(new)
    except (tokenize.TokenError, SyntaxError):
        return None
    if [token[0] for token in before] != [token[0] for token in after]:
        return None
    starts = [token[1] for token in before]

    def move(line: int, column: int) -> tuple[int, int]:
        index = bisect.bisect_right(starts, (line, column)) - 1
        if index < 0:
            return (line, column)
        _, start, end = before[index]
        _, new_start, new_end = after[index]
        if (line, column) >= end:
            return (
                new_end if (line, column) == end else (new_end[0] + line - end[0], new_end[1] + max(column - end[1], 0))
            )
        if line == start[0]:
            return (new_start[0], new_start[1] + column - start[1])
        return (new_start[0] + line - start[0], column)

    return move


def _by_lines(old: str, new: str) -> Move:
    before, after = split_lines(old), split_lines(new)
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False) if _small(before, after) else None
    blocks = _blocks(before, after) if matcher is None else matcher.get_opcodes()
    starts = [block[1] for block in blocks]

    def move(line: int, column: int) -> tuple[int, int]:
        if not blocks:
            return (line, column)
        tag, first, last, new_first, new_last = blocks[max(bisect.bisect_right(starts, line) - 1, 0)]
        if tag == "equal" or last - first == new_last - new_first:
            goal = new_first + line - first
        else:
            goal = min(new_first + line - first, max(new_last - 1, new_first))
        goal = min(max(goal, 0), len(after) - 1)
        if tag == "equal" or not first <= line < last:
            return (goal, column)
        return (goal, _column(before[line], after[goal], column))

    return move


def _small(before: tuple[str, ...], after: tuple[str, ...]) -> bool:
    """Whether a full comparison takes at most a few milliseconds: only then is it done while the user types."""
    return len(before) + len(after) < 1200


def _blocks(before: tuple[str, ...], after: tuple[str, ...]) -> list[tuple[str, int, int, int, int]]:
    """One changed block between a common beginning and a common end."""
    shared = min(len(before), len(after))
    head = next((i for i in range(shared) if before[i] != after[i]), shared)
    tail = next((i for i in range(shared - head) if before[-1 - i] != after[-1 - i]), shared - head)
    return [
        ("equal", 0, head, 0, head),
        ("replace", head, len(before) - tail, head, len(after) - tail),
        ("equal", len(before) - tail, len(before), len(after) - tail, len(after)),
    ]


def _column(before: str, after: str, column: int) -> int:
    """A column of a changed line: the beginning and the end of the line stay where they are."""
    shared = min(len(before), len(after))
    head = next((i for i in range(shared) if before[i] != after[i]), shared)
    if column <= head:
        return column
    return max(min(column + len(after) - len(before), len(after.rstrip("\r\n"))), head)
