"""Sums over the passes of a loop that are not rescaled as another one beside them is: the output of an attention that is merged block by block, where its denominator is."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from graphguard.ir import Frame, Graph, Node, Span, TensorType, Var
from graphguard.ops import aten
from graphguard.repair.graph.editing import fresh
from graphguard.repair.graph.edits import OtherCalls
from graphguard.repair.graph.meanings import Rescaling
from graphguard.repair.graph.neighbours import Guess, Neighbours
from graphguard.repair.text.frames import Sources
from graphguard.repair.text.program import Program
from graphguard.repair.writing.source import Draft
from graphguard.report.diagnostics import TextEdit

_ADD: Final = aten.add.Tensor
_TIMES: Final = aten.mul.Tensor
_COST: Final = 1
_MOST: Final = 24
_TOLD: Final = (
    "'{name}' adds to what earlier passes gave as it is: it must be multiplied by {factor} first, as {sibling} is"
)

Line = tuple[Frame, ...]


def rescaled(around: Neighbours) -> Iterator[Guess]:
    """Guesses for each sum that a line of a program takes in every pass: its first summand times what another line multiplies its own by."""
    graphs = around.capture.ranks
    rows = [_sums(graph) for graph in graphs]
    numbers = {(rank, index): number for number, site in around.sites.items() for rank, index in site.position.items()}
    made = 0
    for mine in rows[0] if rows else ():
        site = around.sites.get(numbers.get((0, rows[0][mine][0]), -1))
        if site is None or site.state != "off" or site.node.phase != "forward":
            continue
        for other in rows[0]:
            for place in (1, 0):
                edit = _rescaled(graphs, rows, (mine, other), place) if other != mine and made < _MOST else None
                if edit is not None:
                    made += 1
                    yield "wrong-relation", edit, site, _COST


def _sums(graph: Graph) -> dict[Line, list[int]]:
    """The sums of two tensors in the forward pass, by the line that takes them."""
    found: dict[Line, list[int]] = {}
    for index, node in enumerate(graph.nodes):
        if node.op == _ADD and node.phase == "forward" and node.stack >= 0 and len(list(node.operands())) == 2:
            found.setdefault(graph.stack_of(node.stack), []).append(index)
    return found


def _rescaled(
    graphs: tuple[Graph, ...], rows: list[dict[Line, list[int]]], lines: tuple[Line, Line], place: int
) -> OtherCalls | None:
    """Sums of one line with the first summand multiplied as that of another line is; None where the other's is not, or where that does not fit."""
    calls: dict[int, Mapping[int, tuple[Node, ...]]] = {}
    types: dict[int, Mapping[Var, TensorType]] = {}
    span = None
    for rank, (graph, row) in enumerate(zip(graphs, rows, strict=True)):
        mine, others = (row.get(line, []) for line in lines)
        if not mine or len(mine) != len(others):
            return None
        made: dict[int, tuple[Node, ...]] = {}
        kinds: dict[Var, TensorType] = {}
        for index, other in zip(mine, others, strict=True):
            product = _product(graph, other)
            factor = product.args[place] if product is not None else None
            node, first = graph.nodes[index], graph.nodes[index].args[0]
            if product is None or not isinstance(factor, Var) or not isinstance(first, Var):
                return None
            if not _fits(graph, factor, first, index):
                return None
            new = Var(fresh(graph) + len(kinds))
            kinds[new] = graph.types[first]
            times = replace(node, op=_TIMES, args=(first, factor), kwargs={}, outs=(new,))
            made[index] = (times, replace(node, args=(new, *node.args[1:])))
            span = graph.stack_of(product.stack)[0].span if product.stack >= 0 else None
        calls[rank], types[rank] = made, kinds
    return OtherCalls(calls, types, _TOLD, Rescaling(span, place)) if span is not None else None


def _product(graph: Graph, index: int) -> Node | None:
    """The product of two tensors that is the first summand of a sum."""
    first = graph.nodes[index].args[0]
    made = graph.producers().get(first) if isinstance(first, Var) else None
    node = graph.nodes[made] if made is not None else None
    return node if node is not None and node.op == _TIMES and len(list(node.operands())) == 2 else None


def _fits(graph: Graph, factor: Var, first: Var, index: int) -> bool:
    """Whether a factor is there at a node, and leaves a tensor the shape and type that it has."""
    small, large = graph.types[factor], graph.types[first]
    sizes = zip(reversed(small.shape), reversed(large.shape), strict=False)
    spread = len(small.shape) <= len(large.shape) and all(size in (1, whole) for size, whole in sizes)
    return spread and small.dtype == large.dtype and graph.producers().get(factor, -1) < index


def factor_and_sibling(meaning: Rescaling, sources: Sources) -> tuple[str, str]:
    """The factor as the other line writes it, and what is multiplied by it there; empty texts where the source does not say."""
    program = sources.program(meaning.span.file)
    match program.expression(meaning.span) if program is not None else None:
        case ast.BinOp(op=ast.Mult(), left=left, right=right) if program is not None:
            factor, other = (right, left) if meaning.place else (left, right)
            return program.source(factor), program.source(other)
        case ast.Call(func=ast.Attribute(value=other, attr="mul" | "mul_"), args=[factor]) if program and meaning.place:
            return program.source(factor), program.source(other)
    return "", ""


def multiplied(program: Program, span: Span, meaning: Rescaling, sources: Sources) -> Iterator[Draft]:
    """The first summand times the factor that the other line has."""
    factor, _ = factor_and_sibling(meaning, sources)
    augmented, value = program.augmented(span), program.expression(span)
    if augmented is not None and isinstance(augmented.op, ast.Add):
        name = program.source(augmented.target)
        text = f"{name} = {name} * {factor} + {program.source(augmented.value)}"
        edits = (TextEdit(program.span(augmented), text),)
    elif isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and isinstance(value.left, ast.Name):
        edits = (TextEdit(program.span(value.left), f"{program.source(value.left)} * {factor}"),)
    else:
        return
    if factor:
        yield Draft(f"multiply by {factor} first", edits)
