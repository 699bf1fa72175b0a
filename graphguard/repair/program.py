"""A source file as repairs see it: text, syntax tree, and the questions an edit must ask of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from graphguard.ir import Span

Function = ast.FunctionDef | ast.AsyncFunctionDef
SHOWN_LENGTH = 40


@dataclass(slots=True)
class Program:
    """One parsed file.  Lines and columns are those of :class:`~graphguard.ir.Span`: from 1, in characters."""

    file: str
    text: str
    tree: ast.Module
    lines: list[str]
    parents: dict[ast.AST, ast.AST] = field(default_factory=dict)

    def span(self, node: ast.expr | ast.stmt) -> Span:
        """The range of a node."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._column(node.lineno, node.col_offset)
        return Span(self.file, node.lineno, start, node.end_lineno, self._column(node.end_lineno, node.end_col_offset))

    def source(self, node: ast.expr | ast.stmt) -> str:
        """The text of a node."""
        return ast.get_source_segment(self.text, node) or ""

    def _column(self, line: int, offset: int) -> int:
        return len(self.lines[line - 1].encode()[:offset].decode(errors="replace")) + 1

    def expression(self, span: Span) -> ast.expr | None:
        """The expression with exactly this range; the outermost of several."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.expr) and self.span(node) == span:
                return node
        return None

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, innermost first."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def statement(self, node: ast.AST) -> ast.stmt | None:
        """The innermost statement around a node, or the node itself."""
        if isinstance(node, ast.stmt):
            return node
        return next((outer for outer in self.ancestors(node) if isinstance(outer, ast.stmt)), None)

    def function(self, node: ast.AST) -> Function | None:
        """The innermost function around a node."""
        return next((outer for outer in self.ancestors(node) if isinstance(outer, Function)), None)

    def klass(self, node: ast.AST) -> ast.ClassDef | None:
        """The innermost class around a node."""
        return next((outer for outer in self.ancestors(node) if isinstance(outer, ast.ClassDef)), None)

    def enclosing_function(self, span: Span) -> Function | None:
        """The innermost function whose range covers a span's start."""
        best: Function | None = None
        for node in ast.walk(self.tree):
            if not isinstance(node, Function) or not node.lineno <= span.line <= (node.end_lineno or node.lineno):
                continue
            if best is None or node.lineno >= best.lineno:
                best = node
        return best

    def indent(self, statement: ast.stmt) -> str:
        """The white space before a statement."""
        line = self.lines[statement.lineno - 1]
        return line[: len(line) - len(line.lstrip())]

    def name_at(self, span: Span) -> str:
        """What the author calls the value of an expression: the name it is assigned to, else its text, shortened."""
        node = self.expression(span)
        if node is None:
            return ""
        target = assigned_name(self.statement(node), node)
        if target:
            return target
        text = " ".join(self.source(node).split())
        return text if len(text) <= SHOWN_LENGTH else text[: SHOWN_LENGTH - 1] + "…"

    def fresh(self, wanted: str, function: ast.AST | None) -> str:
        """A name that nothing in a function uses."""
        used = {node.id for node in ast.walk(function or self.tree) if isinstance(node, ast.Name)}
        used |= {node.arg for node in ast.walk(function or self.tree) if isinstance(node, ast.arg)}
        name, number = wanted, 2
        while name in used:
            name, number = f"{wanted}_{number}", number + 1
        return name


def parse(file: str, text: str) -> Program | None:
    """The program of a file, or None where it does not parse."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    return Program(file, text, tree, text.splitlines() or [""], parents)


def assigned_name(statement: ast.stmt | None, value: ast.expr) -> str:
    """The single name that a statement assigns an expression to, or an empty text."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=assigned) if assigned is value:
            return name
        case ast.AnnAssign(target=ast.Name(id=name), value=assigned) if assigned is value:
            return name
    return ""


def first_operand(call: ast.expr | None) -> ast.expr | None:
    """The tensor that a call or a matrix product reads first."""
    match call:
        case ast.Call(func=ast.Attribute(value=receiver, attr=method)) if method.endswith("_") and not method.endswith(
            "__"
        ):
            return receiver
        case ast.Call(args=[first, *_]):
            return first
        case ast.BinOp(left=left, op=ast.MatMult()):
            return left
    return None
