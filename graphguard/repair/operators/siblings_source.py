"""Exchanging a tensor as another one is exchanged, as text: the author's own call once more, with the other tensor."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from graphguard.ir import Capture, Graph, Node, Span
from graphguard.repair.graph.edits import Tensors
from graphguard.repair.graph.meanings import Called, Sending
from graphguard.repair.operators.guided_source import names_of
from graphguard.repair.text.frames import COPYING, Sources
from graphguard.repair.text.program import Program, first_operand
from graphguard.repair.writing.source import Draft, line_after
from graphguard.report.diagnostics import TextEdit


def sibling_place(capture: Capture, sending: Sending, sources: Sources) -> Span | None:
    """Where the author exchanges the other tensor: in the innermost function that also reads the one that stays."""
    rank = min(sending.position)
    graph = capture.ranks[rank]
    node, var = graph.nodes[sending.position[rank]], sending.tensors[rank]
    readers = [each for each in graph.nodes if var in each.reads and each.phase == "forward"]
    known = {_function(frame.span, sources) for reader in readers for frame in sources.frames(graph, reader)}
    places = [frame.span for frame in sources.frames(graph, node)]
    return next((place for place in places if _function(place, sources) in known), sources.place(graph, node))


def called_place(graph: Graph, node: Node, called: Called, sources: Sources) -> Span | None:
    """The call that is left out, or, in the function that makes it, where another tensor is read of which it is not made."""
    if called.tensors is None:
        return called.span
    within = _function(called.span, sources)
    places = (frame.span for frame in sources.frames(graph, node))
    return next((place for place in places if _function(place, sources) == within), sources.place(graph, node))


def called_names(capture: Capture, called: Called, place: Span | None, sources: Sources) -> tuple[str, str]:
    """What the author calls the tensor that is wrong at a place, and the call of another one, with its quotes."""
    program = sources.program(place.file) if place is not None else None
    if program is None or place is None or called.tensors is None:
        return sources.name_at(place), ""
    operand = _read(capture, called.tensors, program, program.expression(place), sources)
    other = sources.program(called.span.file)
    call = other.expression(called.span) if other is not None else None
    text = other.source(call) if other is not None and call is not None else ""
    return "" if operand is None else program.source(operand), f"'{text}'"


def _function(span: Span, sources: Sources) -> tuple[str, ast.AST | None]:
    program = sources.program(span.file)
    return span.file, None if program is None else program.enclosing_function(span)


def sent_name(capture: Capture, sending: Sending, place: Span | None, sources: Sources) -> str:
    """What the author calls the tensor that stays: by its name where the other one is exchanged, or what is read at a place."""
    program = sources.program(place.file) if place is not None else None
    if program is None or place is None:
        return ""
    rank = min(sending.tensors)
    if sending.later:
        return next(iter(names_of(capture, rank, sending.tensors[rank], program, sources)), "")
    operand = _read(capture, sending.tensors, program, program.expression(place), sources)
    return "" if operand is None else program.source(operand)


def sibling_name(capture: Capture, sending: Sending, sources: Sources) -> str:
    """What the author calls the other tensor."""
    place = sibling_place(capture, sending, sources)
    program = sources.program(place.file) if place is not None else None
    call = program.expression(place) if program is not None and place is not None else None
    operand = _operand(program, call) if program is not None else None
    return program.source(operand) if program is not None and isinstance(operand, ast.Name | ast.Attribute) else ""


def _read(
    capture: Capture, tensors: Tensors, program: Program, value: ast.expr | None, sources: Sources
) -> ast.expr | None:
    """The tensor that stays, in an expression that reads it: by its name, or as what makes it there."""
    rank = min(tensors)
    graph, var = capture.ranks[rank], tensors[rank]
    names = names_of(capture, rank, var, program, sources)
    made = graph.producers().get(var)
    places = [] if made is None else [frame.span for frame in sources.frames(graph, graph.nodes[made])]
    for node in ast.walk(value) if value is not None else ():
        named = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names
        if isinstance(node, ast.expr) and node is not value and (named or program.span(node) in places):
            return node
    return first_operand(value)


def called_alike(capture: Capture, called: Called, program: Program, span: Span, sources: Sources) -> Iterator[Draft]:
    """A call of one tensor, which computes something of it first, of another one as well; or that call left out."""
    if called.span.file != program.file:
        return
    call, tensors = program.expression(called.span), called.tensors
    operand = first_operand(call)
    if tensors is not None:
        value = program.expression(span)
        yield from _around(program, call, value, _read(capture, tensors, program, value, sources))
    elif call is not None and operand is not None:
        text = program.source(operand)
        yield Draft(f"{text} instead of {program.source(call)}", (TextEdit(called.span, text),))


def exchanged_alike(
    capture: Capture, sending: Sending, program: Program, span: Span, sources: Sources
) -> Iterator[Draft]:
    """The call that exchanges the other tensor, of this one: behind that call, or around what is read at a place."""
    place = sibling_place(capture, sending, sources)
    call = program.expression(place) if place is not None and place.file == program.file else None
    statement = program.statement(call) if call is not None else None
    if statement is None:
        return
    if sending.later:
        rank = min(sending.tensors)
        names = names_of(capture, rank, sending.tensors[rank], program, sources)
        yield from (draft for name in names for draft in _behind(program, call, statement, name))
    else:
        value = program.expression(span)
        yield from _around(program, call, value, _read(capture, sending.tensors, program, value, sources))


def _behind(program: Program, call: ast.expr | None, statement: ast.stmt, name: str) -> Iterator[Draft]:
    """Exchange what has a name behind the statement that exchanges the other tensor."""
    written = _written(program, call, name)
    if call is None or written is None:
        return
    lines, received = written
    line = f"{name} = {received}"
    behind = f"\n{program.indent(statement)}".join((*lines, line))
    yield Draft(f"write {lines[-1] if lines else line}", (line_after(program, statement, behind),), program.span(call))


def _around(
    program: Program, call: ast.expr | None, value: ast.expr | None, operand: ast.expr | None
) -> Iterator[Draft]:
    """Exchange what an expression reads, where it reads it."""
    reader = program.statement(value) if value is not None else None
    written = _written(program, call, program.source(operand)) if operand is not None else None
    if value is None or operand is None or reader is None or written is None:
        return
    lines, received = written
    start = Span(program.file, reader.lineno, 1, reader.lineno, 1)
    before = "".join(f"{program.indent(reader)}{line}\n" for line in lines)
    edits = (*((TextEdit(start, before),) if lines else ()), TextEdit(program.span(operand), received))
    yield Draft(f"write {lines[-1] if lines else received}", edits, program.span(value))


def _operand(program: Program, call: ast.expr | None) -> ast.expr | None:
    """What a call exchanges, before it is copied there."""
    operand = call.args[1] if isinstance(call, ast.Call) and _fills(program, call) else first_operand(call)
    while isinstance(operand, ast.Call) and isinstance(operand.func, ast.Attribute) and operand.func.attr in COPYING:
        operand = operand.func.value
    return operand


def _fills(program: Program, call: ast.Call) -> bool:
    """Whether a call writes what it receives into its first argument."""
    named = isinstance(call.func, ast.Attribute) and call.func.attr == "all_to_all_single"
    return named and len(call.args) > 1 and isinstance(program.statement(call), ast.Expr)


def _written(program: Program, call: ast.expr | None, name: str) -> tuple[list[str], str] | None:
    """The statements that exchange another tensor as a call does, and the expression of what comes; None where the call does not say it in one line."""
    operand = _operand(program, call)
    if not isinstance(call, ast.Call) or operand is None:
        return None
    fills = _fills(program, call)
    whole, inner = program.span(call), program.span(operand)
    if whole.line != whole.end_line or (not fills and isinstance(program.statement(call), ast.Expr)):
        return None
    line = program.lines[whole.line - 1]
    before, after = line[whole.column - 1 : inner.column - 1], line[inner.end_column - 1 : whole.end_column - 1]
    if not fills:
        return [], f"{before}{name}{after}"
    received = f"{name}_exchanged" if name.isidentifier() else "exchanged"
    filled = program.span(call.args[0])
    before = f"{line[whole.column - 1 : filled.column - 1]}{received}{line[filled.end_column - 1 : inner.column - 1]}"
    return [f"{received} = torch.empty_like({name})", f"{before}{name}{after}"], received
