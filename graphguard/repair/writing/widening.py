"""Arithmetic in a narrower type than the specification's: how it is told, and how a source text computes in the wider one."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from graphguard.ir import Graph, Node, Span, TensorType, Var
from graphguard.refine.evaluation.exposed import ROUNDED, is_unmeant
from graphguard.repair.text.frames import Sources
from graphguard.repair.text.program import MODULES, Program
from graphguard.repair.writing.source import Draft
from graphguard.report.diagnostics import TextEdit

_CASTS = {"float64": "double()", "float32": "float()", "float16": "half()", "bfloat16": "bfloat16()"}


def rounding_text(name: str, node: Node, types: Mapping[Var, TensorType]) -> str:
    """What a rounding that the specification does not have does, a cast or arithmetic in a narrow type."""
    narrow, wide = types[node.outs[0]].dtype, types[next(node.operands())].dtype
    if node.op == ROUNDED:
        return f"'{name}' is computed in {narrow}; the specification computes in {wide}"
    return f"'{name}' is rounded to {narrow}; the specification keeps {wide} here"


class _Insertions:
    """Casts of expressions, as texts put in before and behind them."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._texts: dict[Span, str] = {}
        self.shown: list[str] = []

    def cast(self, value: ast.expr, dtype: str) -> None:
        """Cast an expression to an element type; what it contains is cast first."""
        method = _CASTS.get(dtype, f"to(torch.{dtype})")
        span = self._program.span(value)
        simple = isinstance(value, ast.Name | ast.Attribute | ast.Subscript | ast.Call)
        start, end = span.end_line, span.end_column
        behind = Span(span.file, start, end, start, end)
        self._texts[behind] = self._texts.get(behind, "") + f"{'' if simple else ')'}.{method}"
        if not simple:
            before = Span(span.file, span.line, span.column, span.line, span.column)
            self._texts[before] = "(" + self._texts.get(before, "")
        text = self._program.source(value)
        self.shown.append(f"{text if simple else f'({text})'}.{method}")

    def edits(self) -> tuple[TextEdit, ...]:
        """The edits that make all casts."""
        return tuple(TextEdit(span, text) for span, text in self._texts.items())


def widened(program: Program, graph: Graph, roundings: Sequence[int], sources: Sources) -> Iterator[Draft]:
    """Let calls whose results are rounded compute in the wider type, those of one file: their tensors of narrow types are cast first, but for those that other such calls make.

    In a second draft what the specification rounds behind them is rounded there as well.
    """
    forward = [index for index in sorted(roundings) if graph.nodes[index].phase != "backward"]
    if not forward:
        return  # a backward pass follows from its forward pass
    functions = {frame.function for index in forward for frame in sources.frames(graph, graph.nodes[index])[:1]}
    behind = [
        index
        for index, node in enumerate(graph.nodes)
        if node.op == ROUNDED and not is_unmeant(node) and node.phase != "backward" and index > forward[0]
        if {frame.function for frame in sources.frames(graph, node)[:1]} <= functions
    ]
    for further in [[], behind] if behind else [[]]:
        made = _Insertions(program)
        if all(_widen(program, graph, index, index in further, made, sources) for index in (*forward, *further)):
            wide = graph.types[next(graph.nodes[forward[0]].operands())].dtype
            yield Draft(f"compute in {wide}: {', '.join(dict.fromkeys(made.shown))}", made.edits())


def _widen(program: Program, graph: Graph, index: int, rounds: bool, made: _Insertions, sources: Sources) -> bool:
    """Let one call compute in the wider type, rounded behind it where it ``rounds``; whether the text shows what it computes with."""
    node, producers = graph.nodes[index], graph.producers()
    wide, narrow = next(node.operands()), graph.types[node.outs[0]].dtype
    span = sources.place(graph, node)
    value = program.expression(span) if span is not None and span.file == program.file else None
    if value is None:
        return False
    read = dict.fromkeys(graph.nodes[producers[wide]].operands())
    wanted = [not _is_rounded(graph, var, producers) for var in read if graph.types[var].dtype == narrow]
    operands = _operands(value)[: len(wanted)]
    if any(wanted[len(operands) :]):
        return False
    for operand, is_wanted in zip(operands, wanted, strict=False):
        if is_wanted:
            made.cast(operand, graph.types[wide].dtype)
    if rounds:
        made.cast(value, narrow)
    return True


def _is_rounded(graph: Graph, var: Var, producers: Mapping[Var, int]) -> bool:
    """Whether a tensor is a rounded one, or one that is rearranged."""
    while (index := producers.get(var)) is not None:
        node = graph.nodes[index]
        if node.op == ROUNDED:
            return True
        operands = list(node.operands())
        if len(operands) != 1:
            return False
        var = operands[0]
    return False


def _operands(value: ast.expr) -> list[ast.expr]:
    """What an expression computes with, tensors first."""
    match value:
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.Call(func=ast.Attribute(value=receiver), args=args) if not (
            isinstance(receiver, ast.Name) and receiver.id in MODULES
        ):
            return [receiver, *args]
        case ast.Call(args=args):
            return [arg for arg in args if not isinstance(arg, ast.Constant)]
    return []
