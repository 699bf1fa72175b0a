"""Several operators in a row that the specification computes of a tensor and the ranks do not: a cap on logits is a quotient, a tanh and a product."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from graphguard.ir import Capture, Frame, Graph, Node, Span, TensorType, Var
from graphguard.ir.graph import COLLECTIVES
from graphguard.refine.proving.proof import Proof
from graphguard.repair.graph.editing import fresh, renamed
from graphguard.repair.graph.edits import OtherCalls, Tensors
from graphguard.repair.graph.meanings import Chain
from graphguard.repair.graph.neighbours import Guess, Neighbours
from graphguard.repair.graph.slices import JOINING, LAYOUT
from graphguard.repair.text.frames import Sources
from graphguard.repair.text.program import MODULES, Program, assigned_name, first_operand, offset
from graphguard.repair.writing.source import Draft, line_after
from graphguard.report.diagnostics import TextEdit

_COST: Final = 2
_LEAST, _MOST = 2, 6  # operators in a row
_HOLDERS: Final = 2
_TOLD: Final = "'{name}' lacks {chain}, which the specification computes of it"


def chains(missing: list[Node], proof: Proof, around: Neighbours) -> Iterator[Guess]:
    """A guess for each row of operators that begins with one of those that are missing, made of what the ranks hold of its operand."""
    spec = around.capture.spec
    sites = {site.tensors[min(site.tensors)]: site for site in around.sites.values() if site.tensors}
    if spec is None:
        return
    for first in missing:
        row = _row(first, proof, around.capture)
        row = row if len(row) >= _LEAST else _closed_row(first, proof, around.capture)
        if not any(_is_rarer(node.op, around.capture) for node in row):
            continue
        for tensors, _ in proof.holders(next(first.operands()))[:_HOLDERS] if len(row) >= _LEAST else ():
            site = sites.get(tensors[min(tensors)])
            if site is None or set(site.tensors) != set(tensors) or site.node.phase != "forward":
                continue
            types = around.capture.ranks[min(tensors)].types
            if (
                any(len(list(node.operands())) > 1 for node in row)
                and types[tensors[min(tensors)]] != spec.types[next(first.operands())]
            ):
                continue
            whole = any(len(list(node.operands())) > 1 for node in row)
            for length in range(len(row), (len(row) if whole else _LEAST) - 1, -1):
                yield "wrong-relation", _inserted(row[:length], tensors, around.capture), site, _COST


def _is_rarer(op: str, capture: Capture) -> bool:
    """Whether the ranks call an operator less often than the specification: else another number is meant, or another place."""
    assert capture.spec is not None
    spec, rank = (
        sum(node.op == op and node.phase == "forward" for node in graph.nodes)
        for graph in (capture.spec, capture.ranks[0])
    )
    return rank < spec


def _row(first: Node, proof: Proof, capture: Capture) -> list[Node]:
    """An operator of one tensor and those that follow, each of the result of the one before alone, as far as no rank has them."""
    spec = capture.spec
    assert spec is not None
    row = [first] if _is_simple(first, spec) else []
    while row and len(row) < _MOST:
        readers = [node for node in spec.nodes if row[-1].outs[0] in node.reads and node.phase == "forward"]
        if len(readers) != 1 or not _is_simple(readers[0], spec) or proof.relation(readers[0].outs[0]) is not None:
            break
        row.append(readers[0])
    return row


def _closed_row(first: Node, proof: Proof, capture: Capture) -> list[Node]:
    """An operator and those that compute with its result and its operand alone, to one that gives a tensor like the operand: a quotient by a sum of it."""
    spec = capture.spec
    assert spec is not None
    operands = set(first.operands())
    if len(operands) != 1 or len(first.outs) != 1 or first.draw is not None or first.phase != "forward":
        return []
    if first.op in COLLECTIVES:
        return []
    (start,) = operands
    row, made = [first], {start, *first.outs}
    while len(row) < _MOST and spec.types[row[-1].outs[0]] != spec.types[start]:
        readers = [node for node in spec.nodes if node.phase == "forward" and row[-1].outs[0] in node.reads]
        if len(readers) != 1 or readers[0].op in COLLECTIVES or not set(readers[0].operands()) <= made:
            return []
        if len(readers[0].outs) != 1 or proof.relation(readers[0].outs[0]) is not None or readers[0].draw is not None:
            return []
        row.append(readers[0])
        made.update(readers[0].outs)
    return row if len(row) >= _LEAST and spec.types[row[-1].outs[0]] == spec.types[start] else []


def _is_simple(node: Node, spec: Graph) -> bool:
    operands = list(node.operands())
    if node.op in LAYOUT | JOINING | COLLECTIVES or len(operands) != 1 or len(node.outs) != 1 or node.draw is not None:
        return False
    return node.phase == "forward" and spec.types[operands[0]] == spec.types[node.outs[0]]


def _inserted(row: list[Node], tensors: Tensors, capture: Capture) -> OtherCalls:
    """The row of operators behind what makes the ranks' tensors; everything reads the result."""
    spec = capture.spec
    assert spec is not None
    calls: dict[int, Mapping[int, tuple[Node, ...]]] = {}
    types: dict[int, Mapping[Var, TensorType]] = {}
    for rank, var in tensors.items():
        graph = capture.ranks[rank]
        index, number, node = graph.producers()[var], fresh(graph), graph.nodes[graph.producers()[var]]
        held = Var(number)
        made = [replace(node, outs=tuple(held if out == var else out for out in node.outs))]
        kinds = {held: graph.types[var]}
        names = {next(row[0].operands()): held}
        for step, each in enumerate(row):
            new = var if each is row[-1] else Var(number + step + 1)
            own = renamed(each, names)
            made.append(replace(node, op=own.op, args=own.args, kwargs=own.kwargs, outs=(new,)))
            kinds[new] = graph.types[var] if each is row[-1] or _is_simple(each, spec) else spec.types[each.outs[0]]
            names[each.outs[0]] = new
        calls[rank], types[rank] = {index: tuple(made)}, kinds
    spans = tuple(frames[0].span for node in row if (frames := _frames(capture, node)))
    return OtherCalls(calls, types, _TOLD, Chain(spans) if len(spans) == len(row) else None)


def _frames(capture: Capture, node: Node) -> tuple[Frame, ...]:
    assert capture.spec is not None
    return capture.spec.stack_of(node.stack) if node.stack >= 0 else ()


def chain_text(spans: tuple[Span, ...], operand: str, sources: Sources) -> str:
    """The specification's expressions one within the other, of an operand of this text; empty where they cannot be read."""
    if written := _in_one(spans, operand, sources):
        return written
    before: Span | None = None
    text, is_whole = operand, operand.isidentifier()
    for span in spans:
        program = sources.program(span.file)
        value = program.expression(span) if program is not None else None
        if program is None or value is None:
            return ""
        inner = next(
            (node for node in ast.walk(value) if before is not None and program.expression(before) is node), None
        )
        replaced = inner if isinstance(inner, ast.expr) and inner is not value else _operand(value)
        if replaced is None:
            return ""
        whole, part = program.source(value), program.source(replaced)
        at = offset(program, value, replaced)
        bare = text if is_whole or (isinstance(value, ast.Call) and replaced in value.args) else f"({text})"
        text = whole[:at] + bare + whole[at + len(part) :]
        before, is_whole = span, isinstance(value, ast.Call)
    return text


def _in_one(spans: tuple[Span, ...], operand: str, sources: Sources) -> str:
    """The specification's expression of which all the others are parts, with another operand by its name; empty where there is none."""
    program = sources.program(spans[-1].file)
    value = program.expression(spans[-1]) if program is not None else None
    first = program.expression(spans[0]) if program is not None else None
    own = _operand(first) if first is not None else None
    if (
        program is None
        or value is None
        or not isinstance(own, ast.Name)
        or all(node is not first for node in ast.walk(value))
    ):
        return ""
    text = program.source(value)
    bare = operand if operand.isidentifier() else f"({operand})"
    names = [node for node in ast.walk(value) if isinstance(node, ast.Name) and node.id == own.id]
    for name in sorted(names, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        at = offset(program, value, name)
        text = text[:at] + bare + text[at + len(own.id) :]
    return text


def _operand(value: ast.expr) -> ast.expr | None:
    """The tensor that an expression computes something of."""
    match value:
        case ast.BinOp(left=left, right=right):
            sides = [side for side in (left, right) if not isinstance(side, ast.Constant)]
            names = [side for side in sides if isinstance(side, ast.Name)]
            return sides[0] if len(sides) == 1 else names[0] if names else left
        case ast.UnaryOp(operand=operand):
            return operand
        case ast.Call(func=ast.Attribute(value=receiver)) if not (
            isinstance(receiver, ast.Name) and receiver.id in MODULES
        ):
            return (
                value.args[0] if value.args and isinstance(receiver, ast.Name) and receiver.id == "self" else receiver
            )
        case ast.Call(args=[operand, *_]):
            return operand
    return None


def chain_name(span: Span | None, sources: Sources) -> str:
    """The name of the first of several results that are made at a place; empty where it makes one."""
    program = sources.program(span.file) if span is not None else None
    value = program.expression(span) if program is not None and span is not None else None
    statement = program.statement(value) if program is not None and value is not None else None
    return "" if statement is None or value is None else _first_of_pair(statement, value)


def _first_of_pair(statement: ast.stmt, value: ast.expr) -> str:
    """The name of the first of several results that a statement takes apart."""
    match statement:
        case ast.Assign(targets=[ast.Tuple(elts=[ast.Name(id=name), *_])], value=made) if made is value:
            return name
    return ""


def named_at(value: ast.expr, statement: ast.stmt) -> str:
    """What the author calls the value of an expression from its statement on, or the tensor that a call changes in place; empty where it has no name."""
    reduced = first_operand(value) if isinstance(statement, ast.Expr) else None
    if isinstance(reduced, ast.Name):
        return reduced.id
    return assigned_name(statement, value) or _first_of_pair(statement, value)


def chain_added(program: Program, span: Span, spans: tuple[Span, ...], sources: Sources) -> Iterator[Draft]:
    """The specification's expressions, of a tensor by its name behind the statement that makes it, or around the expression."""
    value = program.expression(span)
    statement = program.statement(value) if value is not None else None
    if value is None or statement is None:
        return
    name = named_at(value, statement)
    text = chain_text(spans, name or program.source(value), sources)
    if text and name:
        yield Draft(f"{name} = {text}", (line_after(program, statement, f"{name} = {text}"),))
    elif text and not isinstance(statement, ast.Expr):
        yield Draft(f"write {text}", (TextEdit(program.span(value), text),))
