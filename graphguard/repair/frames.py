"""Where in the user's code a node stands: DESIGN's rule for the primary range.

The primary frame is the innermost one that belongs to the checked project or to the code of the programs, and that is not merely a
wrapper which issues the collective on its own argument.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from graphguard.ir import Capture, Frame, Graph, Node, Span
from graphguard.ir.graph import COLLECTIVES
from graphguard.repair.program import Program, first_operand, parse

COPYING = frozenset({"clone", "contiguous", "detach", "view_as"})
Read = Callable[[str], str | None]


@dataclass(slots=True)
class Sources:
    """The files of a capture, read once and parsed on demand."""

    capture: Capture
    read: Read
    _programs: dict[str, Program | None]

    @classmethod
    def of(cls, capture: Capture, read: Read) -> Sources:
        """The sources of a capture; ``read`` gives a file's present text, or None."""
        return cls(capture, read, {})

    def program(self, file: str) -> Program | None:
        """A parsed file, or None where it cannot be read or parsed."""
        if file not in self._programs:
            text = self.read(file)
            self._programs[file] = None if text is None else parse(file, text)
        return self._programs[file]

    def name_at(self, span: Span | None) -> str:
        """What the author calls the value computed at a span."""
        program = self.program(span.file) if span is not None else None
        return "" if program is None or span is None else program.name_at(span)

    def tensor_at(self, span: Span | None) -> str:
        """The same, but a call that works in place on its argument is named after that argument."""
        program = self.program(span.file) if span is not None else None
        call = program.expression(span) if program is not None and span is not None else None
        if program is not None and isinstance(call, ast.Call) and isinstance(program.statement(call), ast.Expr):
            operand = first_operand(call)
            return program.source(operand) if operand is not None else program.name_at(program.span(call))
        return self.name_at(span)

    def operand_at(self, span: Span | None) -> str:
        """What the author calls the first operand of the call at a span."""
        program = self.program(span.file) if span is not None else None
        call = program.expression(span) if program is not None and span is not None else None
        operand = first_operand(call)
        return "" if program is None or operand is None else program.source(operand)

    def frames(self, graph: Graph, node: Node) -> tuple[Frame, ...]:
        """The project's frames of a node, innermost first: its own, else those of the forward call it differentiates."""
        for stack in (node.stack, node.forward):
            frames = tuple(frame for frame in graph.stack_of(stack) if self.in_project(frame.span.file))
            if frames:
                return frames
        return ()

    def in_project(self, file: str) -> bool:
        """Whether a file belongs to the checked project: it was imported from it, or only linecache knows it."""
        return file in self.capture.sources or file == self.capture.check.span.file or file.startswith("<")

    def place(self, graph: Graph, node: Node) -> Span | None:
        """The primary range of a node."""
        frames = self.frames(graph, node)
        wrapped = node.op in COLLECTIVES
        chosen = next((frame for frame in frames[:-1] if not (wrapped and self._is_wrapper(frame))), None)
        return (chosen or frames[-1]).span if frames else None

    def _is_wrapper(self, frame: Frame) -> bool:
        """Whether a frame's function hands one of its own parameters to the call that stands there."""
        program = self.program(frame.span.file)
        call = program.expression(frame.span) if program is not None else None
        if program is None or not isinstance(call, ast.Call) or not call.args:
            return False
        function = program.function(call)
        if function is None or not isinstance(call.args[0], ast.Name):
            return False
        name = call.args[0].id
        return name in {argument.arg for argument in function.args.args} and not _recomputed(function, name)


def _recomputed(function: ast.AST, name: str) -> bool:
    """Whether a function gives a parameter another value than a copy of itself."""
    return any(
        isinstance(statement, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == name for target in statement.targets)
        and not _is_copy(statement.value, name)
        for statement in ast.walk(function)
    )


def _is_copy(value: ast.expr, name: str) -> bool:
    match value:
        case ast.Name(id=other):
            return other == name
        case ast.Call(func=ast.Attribute(value=inner, attr=method)) if method in COPYING:
            return _is_copy(inner, name)
    return False


def reader(overlay: Mapping[str, str]) -> Read:
    """Reads files from unsaved texts first, then from disk; None where there is no such text file."""

    def read(file: str) -> str | None:
        if file in overlay:
            return overlay[file]
        try:
            with open(file, encoding="utf-8") as stream:
                return stream.read()
        except (OSError, UnicodeDecodeError):
            return None

    return read
