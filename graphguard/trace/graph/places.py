"""Where a call stands in its file: the lines, the statement, and texts before and behind it."""

from __future__ import annotations

import ast
import linecache
from dataclasses import dataclass

from graphguard.ir import Span


@dataclass(frozen=True, slots=True)
class Place:
    """A span in its file: the lines, the statement that it is in, and the innermost call, if it is one."""

    file: str
    lines: list[str]
    statement: ast.stmt
    call: ast.Call | None

    def text(self, node: ast.AST) -> str:
        """A node as it is written."""
        return ast.get_source_segment("".join(self.lines), node) or ""

    def span(self, node: ast.expr | ast.stmt) -> Span:
        """Where a node stands."""
        end_line, end = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
        return Span(
            self.file, node.lineno, self._column(node.lineno, node.col_offset), end_line, self._column(end_line, end)
        )

    def _column(self, line: int, offset: int) -> int:
        return len(self.lines[line - 1].encode()[:offset].decode(errors="ignore")) + 1

    def before(self, text: str) -> tuple[Span, str]:
        """A line before the statement."""
        at = self.span(self.statement)
        return Span(self.file, at.line, at.column, at.line, at.column), f"{text}\n{self.indent()}"

    def after(self, text: str) -> tuple[Span, str]:
        """A line after the statement."""
        at = self.span(self.statement)
        return Span(self.file, at.end_line, at.end_column, at.end_line, at.end_column), f"\n{self.indent()}{text}"

    def indent(self) -> str:
        """What stands before the statement in its line."""
        line = self.lines[self.statement.lineno - 1]
        return line[: len(line) - len(line.lstrip())]


def place_of(span: Span | None) -> Place | None:
    """The place of a call; None where its file is not there, or no statement stands there."""
    lines = [] if span is None else linecache.getlines(span.file)
    if span is None or not 1 <= span.line <= len(lines):
        return None
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):
        return None
    around = [node for node in ast.walk(tree) if isinstance(node, ast.stmt | ast.Call) and _holds(node, span, lines)]
    statements = [node for node in around if isinstance(node, ast.stmt) and not hasattr(node, "body")]
    calls = [node for node in around if isinstance(node, ast.Call) and node.lineno == span.line]
    if not statements:
        return None
    return Place(span.file, lines, statements[-1], calls[-1] if calls else None)


def _holds(node: ast.stmt | ast.expr, span: Span, lines: list[str]) -> bool:
    offset = len(lines[span.line - 1][: span.column - 1].encode())
    end = node.end_lineno or node.lineno, node.end_col_offset or 0
    return (node.lineno, node.col_offset) <= (span.line, offset) < end
