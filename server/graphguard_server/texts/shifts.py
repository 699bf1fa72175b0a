"""Where a place of an older text is in a newer one.

Results are computed on a snapshot.  When the text changes only in comments or layout, places follow their tokens exactly; after any other edit
they follow the unchanged lines, and the results are marked stale.  Both look only at what changed, for this happens at every keystroke.
"""

from __future__ import annotations

import bisect
import difflib
import functools
import io
import tokenize
from collections.abc import Callable
from typing import Final, TypeAlias

from graphguard.ir.spans import Span
from graphguard_server.texts.positions import split_lines
from graphguard_server.texts.source import first_line, meaning, parsed, python_lines, segment

Point: TypeAlias = tuple[int, int]
Move: TypeAlias = Callable[[int, int], Point]
Token: TypeAlias = tuple[str, Point, Point]
Block: TypeAlias = tuple[str, int, int, int, int]

COMPARED_LINES: Final = 300
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
def shift(old: str, new: str) -> Move:
    """The map from lines and columns (from 0) of ``old`` to those of ``new``."""
    if old == new:
        return lambda line, column: (line, column)
    if meaning(old) is not None and meaning(old) == meaning(new):
        by_tokens = _by_statements(old, new)
        if by_tokens is not None:
            return by_tokens
    return _by_lines(old, new)


def _by_statements(old: str, new: str) -> Move | None:
    """Statement by statement of the module: those that look the same move as they are, in the others every token is followed."""
    before, after = parsed(old), parsed(new)
    if before is None or after is None or len(before.body) != len(after.body):
        return None
    old_lines, new_lines = python_lines(old), python_lines(new)
    starts: list[Point] = []
    moves: list[Move] = []
    for mine, other in zip(before.body, after.body, strict=True):
        top, goal = first_line(mine) - 1, first_line(other) - 1
        source, target = segment(mine, old_lines), segment(other, new_lines)
        inner = _same if source == target else _by_tokens(source, target)
        if inner is None:
            return None
        starts.append((top, 0))
        moves.append(_offset(inner, top, goal))

    def move(line: int, column: int) -> Point:
        index = bisect.bisect_right(starts, (line, column)) - 1
        return moves[index](line, column) if index >= 0 else (line, column)

    return move


def _same(line: int, column: int) -> Point:
    return line, column


def _offset(inner: Move, top: int, goal: int) -> Move:
    def move(line: int, column: int) -> Point:
        found, at = inner(line - top, column)
        return found + goal, at

    return move


def _by_tokens(old: str, new: str) -> Move | None:
    try:
        before, after = _tokens(old), _tokens(new)
    except (tokenize.TokenError, SyntaxError):
        return None
    if [token[0] for token in before] != [token[0] for token in after]:
        return _by_lines(old, new)
    starts = [token[1] for token in before]

    def move(line: int, column: int) -> Point:
        index = bisect.bisect_right(starts, (line, column)) - 1
        if index < 0:
            return (line, column)
        _, start, end = before[index]
        _, new_start, new_end = after[index]
        if (line, column) >= end:
            beyond = max(column - end[1], 0) if line == end[0] else column
            return (new_end[0] + line - end[0], new_end[1] + beyond if line == end[0] else beyond)
        if line == start[0]:
            return (new_start[0], new_start[1] + column - start[1])
        return (new_start[0] + line - start[0], column)

    return move


def _tokens(text: str) -> list[Token]:
    return [
        (token.string, (token.start[0] - 1, token.start[1]), (token.end[0] - 1, token.end[1]))
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in _SKIPPED
    ]


def _by_lines(old: str, new: str) -> Move:
    before, after = split_lines(old), split_lines(new)
    blocks = _blocks(before, after)
    starts = [block[1] for block in blocks]

    def move(line: int, column: int) -> Point:
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


def _blocks(before: tuple[str, ...], after: tuple[str, ...]) -> list[Block]:
    """What is equal and what changed: a common beginning, a common end, and between them a comparison where that is quick."""
    shared = min(len(before), len(after))
    head = next((i for i in range(shared) if before[i] != after[i]), shared)
    tail = next((i for i in range(shared - head) if before[-1 - i] != after[-1 - i]), shared - head)
    last, new_last = len(before) - tail, len(after) - tail
    middle: list[Block] = [("replace", head, last, head, new_last)]
    if last - head + new_last - head <= COMPARED_LINES:
        matcher = difflib.SequenceMatcher(None, before[head:last], after[head:new_last], autojunk=False)
        middle = [(tag, a + head, b + head, c + head, d + head) for tag, a, b, c, d in matcher.get_opcodes()]
    return [("equal", 0, head, 0, head), *middle, ("equal", last, len(before), new_last, len(after))]


def _column(before: str, after: str, column: int) -> int:
    """A column of a changed line: the beginning and the end of the line stay where they are."""
    shared = min(len(before), len(after))
    head = next((i for i in range(shared) if before[i] != after[i]), shared)
    if column <= head:
        return column
    return max(min(column + len(after) - len(before), len(after.rstrip("\r\n"))), head)
