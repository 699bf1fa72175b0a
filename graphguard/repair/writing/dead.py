"""Reductions whose result nobody reads: the usual story behind a value that stays partial although the program reduces it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from graphguard.ir import Capture, Graph, Node, Span, Var
from graphguard.ir.graph import COLLECTIVES
from graphguard.ir.joining import join
from graphguard.ops import gg, operators
from graphguard.repair.text.program import Program, first_operand
from graphguard.repair.writing.source import Draft
from graphguard.report.diagnostics import TextEdit

_SAME_VALUES = operators(lambda op: op.moves in ("same", "view", "permute"))
_SILENT = frozenset({gg.barrier, gg.send})
_RECEIVING = frozenset({gg.recv, gg.broadcast, gg.scatter})


def dead_everywhere(capture: Capture, rank: int = 0) -> list[Node]:
    """A rank's collectives whose results reach no output on any rank that takes part, in order."""
    own = dead_collectives(capture.ranks[rank])
    if not own:
        return []
    dead = [{id(node) for node in dead_collectives(graph)} for graph in capture.ranks]
    alive = {
        id(capture.ranks[member].nodes[index])
        for call in join(capture.ranks).collectives
        if not all(id(capture.ranks[member].nodes[index]) in dead[member] for member, index in call.nodes.items())
        for member, index in call.nodes.items()
    }
    return [node for node in own if id(node) not in alive]


def dead_collectives(graph: Graph) -> list[Node]:
    """The collectives whose results reach no output of a rank and decide no size, in order; those of known numbers are left out, which the program itself may have read."""
    producers = graph.producers()
    read: set[int] = set()
    waiting = [*graph.outputs.values(), *graph.symbols.values()]
    while waiting:
        index = producers.get(waiting.pop())
        if index is not None and index not in read:
            read.add(index)
            waiting.extend(graph.nodes[index].operands())
    found = [
        node
        for index, node in enumerate(graph.nodes)
        if node.op in COLLECTIVES and node.op not in _SILENT and index not in read
    ]
    known = _known(graph) if found else frozenset[Var]()
    return [node for node in found if not known.issuperset(node.outs)]


def _known(graph: Graph) -> frozenset[Var]:
    """The tensors that no input, no random draw and no other rank's message has a part in: their numbers are known while the program is recorded."""
    unknown = set(graph.inputs)
    for node in graph.nodes:
        if node.draw is not None or node.op in _RECEIVING or not unknown.isdisjoint(node.operands()):
            unknown.update(node.outs)
    return frozenset(out for node in graph.nodes for out in node.outs if out not in unknown)


def dead_reduction(capture: Capture, rank: int, partial: Node) -> Node | None:
    """A sum over ranks of this node's own value, rearranged at most, whose result no rank reads."""
    graph = capture.ranks[rank]
    for node in dead_everywhere(capture, rank):
        if node.op in (gg.all_reduce, gg.reduce_scatter) and any(
            _rests_on(graph, operand, partial) for operand in node.operands()
        ):
            return node
    return None


def _rests_on(graph: Graph, var: Var, partial: Node) -> bool:
    producers = graph.producers()
    mine = source_of(graph, partial.outs[0], producers)
    return source_of(graph, var, producers) == mine


def rearranged_outputs(graph: Graph) -> list[tuple[Var, str]]:
    """For every output the tensor that it is, rearranged or copied at most, and its name."""
    producers = graph.producers()
    return [(source_of(graph, var, producers), name) for name, var in graph.outputs.items()]


def source_of(graph: Graph, var: Var, producers: dict[Var, int]) -> Var:
    """The tensor that a tensor rearranges or copies."""
    while var in producers:
        node = graph.nodes[producers[var]]
        operands = list(node.operands())
        if node.op not in _SAME_VALUES or not operands:
            return var
        var = operands[0]
    return var


def _kept_copy(program: Program, call: ast.Call, original: ast.Name, copy: ast.Call) -> Iterator[Draft]:
    """Give a copy that must be made the name of what it copies, before it is reduced in place."""
    statement, name = program.statement(call), program.source(original)
    if isinstance(statement, ast.Expr) and statement.value is call:
        line = f"{program.indent(statement)}{name} = {program.source(copy)}\n"
        before = Span(program.file, statement.lineno, 1, statement.lineno, 1)
        edits = TextEdit(before, line), TextEdit(program.span(copy), name)
        yield Draft(f"reduce {name} itself, not a copy of it", edits)


def use_result(program: Program, span: Span) -> Iterator[Draft]:
    """Make the program read what the collective gives: give it the name that is read, or reduce the tensor and not a copy of it."""
    call = program.expression(span)
    operand = first_operand(call)
    statement = program.statement(call) if call is not None else None
    if not isinstance(call, ast.Call) or operand is None:
        return
    match operand:
        case ast.Call(func=ast.Attribute(value=ast.Name() as original, attr="clone" | "detach"), args=[]):
            name = program.source(original)
            yield Draft(f"reduce {name} itself, not a copy of it", (TextEdit(program.span(operand), name),))
            return
        case ast.Call(func=ast.Attribute(value=ast.Name() as original, attr="contiguous"), args=[]):
            yield from _kept_copy(program, call, original, operand)
            return
        case ast.Name(id=name):
            pass
        case _:
            return
    if isinstance(statement, ast.Expr) and statement.value is call:
        start = program.span(statement)
        before = Span(start.file, start.line, start.column, start.line, start.column)
        yield Draft(f"use the result: {name} = ...", (TextEdit(before, f"{name} = "),))
    elif isinstance(statement, ast.Assign) and statement.value is call and isinstance(statement.targets[0], ast.Name):
        target = statement.targets[0]
        yield Draft(f"use the result: {name} = ...", (TextEdit(program.span(target), name),))
