"""Moves the places of a capture from one text of a file to another of the same meaning: comments and layout may differ, the syntax tree does not."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import replace

from graphguard.ir import Capture, Frame, Graph, Span

_Place = tuple[int, int]


class Unmapped(Exception):  # noqa: N818 - no error: the capture is made anew
    """A place of the old text has no counterpart in the new one."""


class Moves:
    """Where every place of an old text is in a new one.  Raises ``Unmapped`` where the two do not have the same syntax tree."""

    def __init__(self, old: bytes, new: bytes) -> None:
        self._starts: dict[_Place, _Place] = {}
        self._ends: dict[_Place, _Place] = {}
        self._lines: dict[int, int] = {}
        first, second = _Text(old), _Text(new)
        nodes = zip(ast.walk(first.tree), ast.walk(second.tree), strict=True)
        try:
            for before, after in nodes:
                self._pair(before, after, first, second)
        except ValueError as error:
            raise Unmapped from error

    def _pair(self, before: ast.AST, after: ast.AST, first: _Text, second: _Text) -> None:
        if type(before) is not type(after):
            raise Unmapped
        if not hasattr(before, "end_lineno"):
            return
        start = first.start(before)
        self._starts.setdefault(start, second.start(after))
        self._ends.setdefault(first.end(before), second.end(after))
        self._lines.setdefault(start[0], second.start(after)[0])

    def span(self, span: Span) -> Span:
        """The place in the new text; raises ``Unmapped``."""
        try:
            if not span.end_line:
                return Span(span.file, self._lines[span.line])
            line, column = self._starts[span.line, span.column]
            return Span(span.file, line, column, *self._ends[span.end_line, span.end_column])
        except KeyError as error:
            raise Unmapped from error


class _Text:
    """A parsed text whose places count characters from 1."""

    def __init__(self, data: bytes) -> None:
        self.tree = ast.parse(data)
        self._lines = data.splitlines()

    def start(self, node: ast.AST) -> _Place:
        return self._place(node.lineno, node.col_offset)  # type: ignore[attr-defined] # has end_lineno, so it has these

    def end(self, node: ast.AST) -> _Place:
        return self._place(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined] # has end_lineno

    def _place(self, line: int, offset: int) -> _Place:
        return line, len(self._lines[line - 1][:offset].decode(errors="ignore")) + 1


def remapped(capture: Capture, moves: Mapping[str, Moves]) -> Capture:
    """The capture with every place in these files moved; raises ``Unmapped``."""

    def moved(frames: Iterable[Frame]) -> tuple[Frame, ...]:
        return tuple(
            Frame(moves[frame.span.file].span(frame.span), frame.function) if frame.span.file in moves else frame
            for frame in frames
        )

    def move(graph: Graph) -> Graph:
        return replace(graph, frames=moved(graph.frames))

    return replace(
        capture,
        spec=None if capture.spec is None else move(capture.spec),
        ranks=tuple(move(graph) for graph in capture.ranks),
        made={name: moved(frames) for name, frames in capture.made.items()},
    )
