"""Where in the user's code a node stands: DESIGN's rule for the primary range.

The primary frame is the innermost one that belongs to the checked project or to the code of the programs, and that is not merely a
wrapper which issues the collective on its own argument.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass, replace

from graphguard.ir import Capture, Frame, Graph, Node, Span
from graphguard.ir.graph import COLLECTIVES
from graphguard.repair.text.program import METHODS, Program, first_operand, is_module, numbers_behind, parse

COPYING = frozenset({"clone", "contiguous", "detach", "view_as"})
Read = Callable[[str], str | None]


@dataclass(slots=True)
class Sources:
    """The files of a capture, read once and parsed on demand."""

    capture: Capture
    read: Read
    _programs: dict[str, Program | None]
    _specified: set[tuple[str, int] | None] | None = None
    _different: set[tuple[str, int] | None] | None = None

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
        if program is not None and isinstance(call, ast.Call) and program.stands_alone(call):
            operand = first_operand(call)
            return program.source(operand) if operand is not None else program.name_at(program.span(call))
        return self.name_at(span)

    def call_with_effect(self, span: Span | None, op: str) -> str:
        """The text of a call whose value nobody takes and that is not itself the operator run there, as ``clip_grad_norm_(parameters, 1.0)`` is no norm; empty for any other."""
        program = self.program(span.file) if span is not None else None
        call = program.expression(span) if program is not None and span is not None else None
        if program is None or not isinstance(call, ast.Call) or not program.stands_alone(call):
            return ""
        function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        return "" if function.rstrip("_") in op else self.name_at(span)

    def is_named(self, span: Span | None) -> bool:
        """Whether the author gives the value of an expression a name, returns it, or works in place."""
        program = self.program(span.file) if span is not None else None
        node = program.expression(span) if program is not None and span is not None else None
        if program is None or node is None:
            return True
        statement = program.statement(node)
        if (
            isinstance(statement, ast.Assign)
            and isinstance(statement.value, ast.Tuple)
            and node in statement.value.elts
        ):
            return True
        return isinstance(statement, ast.Assign | ast.AnnAssign | ast.Return | ast.Expr) and statement.value is node

    def is_scaled_by_number(self, span: Span) -> bool:
        """Whether a product or a quotient has a side in which nothing is read by name."""
        program = self.program(span.file)
        value = program.expression(span) if program is not None else None
        sides = (value.left, value.right) if isinstance(value, ast.BinOp) else ()
        return any(all(not isinstance(node, ast.Name | ast.Call) for node in ast.walk(side)) for side in sides)

    def operand_at(self, span: Span | None) -> str:
        """What the author calls the first operand of the call at a span, which may be copied there."""
        program = self.program(span.file) if span is not None else None
        call = program.expression(span) if program is not None and span is not None else None
        operand = first_operand(call)
        while (
            isinstance(operand, ast.Call) and isinstance(operand.func, ast.Attribute) and operand.func.attr in COPYING
        ):
            operand = operand.func.value
        if program is not None and isinstance(operand, ast.Starred):
            return f"{program.source(operand.value)}[0]"
        return "" if program is None or operand is None else program.source(operand)

    def is_operator(self, span: Span | None) -> bool:
        """Whether the expression at a place can be one operator: arithmetic, a function of PyTorch's, or a tensor's method, and no call of the project's or a library's."""
        program = self.program(span.file) if span is not None else None
        match program.expression(span) if program is not None and span is not None else None:
            case ast.Call(func=ast.Attribute(value=receiver, attr=method)):
                return method in METHODS or is_module(receiver) or (method.endswith("_") and not method.endswith("__"))
            case ast.Call():
                return False
        return True

    def frames(self, graph: Graph, node: Node) -> tuple[Frame, ...]:
        """The project's frames of a node, innermost first: its own, else those of the forward call it differentiates."""
        for stack in (node.stack, node.forward):
            frames = tuple(frame for frame in graph.stack_of(stack) if self.in_project(frame.span.file))
            if frames:
                return frames
        return ()

    def forward_frames(self, graph: Graph, node: Node) -> tuple[Frame, ...]:
        """The frames of the project in which a call was made, or that which autograd ran it for."""
        forward = graph.stack_of(node.forward) if node.phase == "backward" else ()
        return tuple(frame for frame in forward if self.in_project(frame.span.file)) or self.frames(graph, node)

    def places(self, graph: Graph, node: Node) -> list[Span]:
        """Every place that a node goes through: its own first, then those of the calls around it and of what it is the gradient of."""
        first = self.place(graph, node)
        spans = [] if first is None else [first]
        forward = graph.stack_of(node.forward) if node.phase == "backward" else ()
        frames = (*self.frames(graph, node), *(each for each in forward if self.in_project(each.span.file)))
        return list(dict.fromkeys([*spans, *(frame.span for frame in frames)]))

    def numbers(self, graph: Graph, node: Node) -> list[Span]:
        """Where the numbers get their values that the innermost call of a node reads by name."""
        for frame in self.frames(graph, node)[:1]:
            program = self.program(frame.span.file)
            call = program.expression(frame.span) if program is not None else None
            if program is not None and call is not None:
                return [program.span(value) for value in numbers_behind(program, call)]
        return []

    def project(self) -> list[str]:
        """The files of the checked project, that of the check first."""
        return list(dict.fromkeys([self.capture.check.span.file, *self.capture.sources]))

    def programs(self) -> list[Program]:
        """The project's files that can be read."""
        return [program for file in self.project() if (program := self.program(file)) is not None]

    def in_project(self, file: str) -> bool:
        """Whether a file belongs to the checked project: it was imported from it, or only linecache knows it."""
        return file in self.capture.sources or file == self.capture.check.span.file or file.startswith("<")

    def place(self, graph: Graph, node: Node) -> Span | None:
        """The primary range of a node: not in a function that the specification runs as well, which is right by definition."""
        return self._placed(graph, node, shared=graph is self.capture.spec)

    def forward_call(self, graph: Graph, node: Node) -> Span | None:
        """Where the forward call stands that a node of the backward pass differentiates; None for any other node."""
        return None if node.phase != "backward" or node.forward < 0 else self.place(graph, replace(node, stack=-1))

    def own_place(self, graph: Graph, node: Node, known: Collection[int]) -> Span | None:
        """The innermost place of a node at which no other node does the same but those that are known, and that is more than taking apart an argument.

        A helper may serve other calls well, and what it takes apart and how is said where it is called.
        """
        others = [
            each
            for index, each in enumerate(graph.nodes)
            if each.op == node.op and each is not node and index not in known
        ]
        taken = {frame.span for each in others for frame in self.frames(graph, each)}
        place = self.place(graph, node)
        inner = itertools.dropwhile(lambda span: span != place, (frame.span for frame in self.frames(graph, node)))
        return next((span for span in inner if span not in taken and not self._is_of_argument(span)), place)

    def _is_of_argument(self, span: Span) -> bool:
        """Whether all that a function returns is made of an argument in one expression."""
        program = self.program(span.file)
        value = program.expression(span) if program is not None else None
        function = program.function(value) if program is not None and value is not None else None
        if function is None or value is None or not isinstance(function.body[-1], ast.Return):
            return False
        returned = any(node is value for node in ast.walk(function.body[-1]))
        arguments = {argument.arg for argument in function.args.args}
        first = next((node.id for node in ast.walk(value) if isinstance(node, ast.Name)), "")
        return returned and first in arguments and not _recomputed(function, first)

    def knowing_place(self, graph: Graph, node: Node) -> Span | None:
        """The innermost place of a node in a function that can know what is on which rank: none that does no more than hand out one expression of what it is given."""
        place = self.place(graph, node)
        spans = [frame.span for frame in self.frames(graph, node)]
        outer = itertools.dropwhile(lambda span: span != place, spans)
        return next((span for span in outer if not self._is_of_arguments_alone(span)), place)

    def _is_of_arguments_alone(self, span: Span) -> bool:
        program = self.program(span.file)
        value = program.expression(span) if program is not None else None
        function = program.function(value) if program is not None and value is not None else None
        match function:
            case ast.FunctionDef(body=[*_, ast.Return(value=ast.expr() as returned)], args=arguments) if (
                returned is value
            ):
                given = {each.arg for each in arguments.args} - {"self"}
                names = {node.id for node in ast.walk(returned) if isinstance(node, ast.Name) and not is_module(node)}
                return bool(given) and names <= given and not any("group" in name for name in given)
        return False

    def name_place(self, graph: Graph, node: Node) -> Span | None:
        """Where a node's tensor gets the name that its author knows it by: also in a function that the specification runs as well."""
        return self._placed(graph, node, shared=True)

    def _placed(self, graph: Graph, node: Node, shared: bool) -> Span | None:
        frames = self.frames(graph, node)
        if not (shared or self.capture.same):
            own = tuple(frame for frame in frames if not self.is_shared(frame))
            frames = own or tuple(frame for frame in frames if not self.is_alike(frame)) or frames
        wrapped = node.op in COLLECTIVES
        chosen = next((frame for frame in frames[:-1] if not (wrapped and self._is_wrapper(frame))), None)
        return (chosen or frames[-1]).span if frames else None

    def is_shared(self, frame: Frame) -> bool:
        """Whether the specification ran a frame's function."""
        if self._specified is None:
            self._specified = {self._function(each) for each in self._known} - {None}
        return self._function(frame) in self._specified

    def is_alike(self, frame: Frame) -> bool:
        """Whether a frame's function does no more than give back one expression, and ranks run nothing else in it than the specification: nothing can be missing there."""
        if not (self.is_shared(frame) and self._is_one_expression(frame)):
            return False
        if self._different is None:
            assert self._specified is not None
            self._different = self._own(self._specified, {each.span for each in self._known})
        return self._function(frame) not in self._different

    def _is_one_expression(self, frame: Frame) -> bool:
        program = self.program(frame.span.file)
        function = program.enclosing_function(frame.span) if program is not None else None
        match function:
            case ast.FunctionDef(body=[ast.Return()] | [ast.Expr(value=ast.Constant()), ast.Return()]):
                return True
        return False

    @property
    def _known(self) -> tuple[Frame, ...]:
        return self.capture.spec.frames if self.capture.spec is not None else ()

    def _own(self, functions: Set[tuple[str, int] | None], known: Set[Span]) -> set[tuple[str, int] | None]:
        """The functions of the specification in which ranks run lines other than those that are ``known``, and those that call them; what another function does that is called there is not theirs."""
        found = set[tuple[str, int] | None]()
        for graph in self.capture.ranks:
            new = {
                number
                for number, frame in enumerate(graph.frames)
                if frame.span not in known and self._function(frame) in functions
            }
            for stack in graph.stacks if new else ():
                first = next((place for place, number in enumerate(stack) if number in new), len(stack))
                found |= {self._function(graph.frames[number]) for number in stack[first:]}
        return found

    def _function(self, frame: Frame) -> tuple[str, int] | None:
        """A frame's function: its file and first line."""
        program = self.program(frame.span.file) if self.in_project(frame.span.file) else None
        function = program.enclosing_function(frame.span) if program is not None else None
        return None if function is None else (frame.span.file, function.lineno)

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
