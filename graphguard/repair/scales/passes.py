"""Results of a loop's earlier passes that nothing reads: the last pass keeps its own, where all should be added up."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from graphguard.ir import Graph, Node, Span, Var
from graphguard.ir.graph import COLLECTIVES
from graphguard.repair.graph.edits import Accumulate
from graphguard.repair.graph.neighbours import Guess, Neighbours
from graphguard.repair.text.program import Program, assigned_name
from graphguard.repair.writing.source import Draft
from graphguard.report.diagnostics import TextEdit

RULE, LIKELY = "wrong-relation", 1
_Call = tuple[str, int, int, str]
"""An operator and where it was called from: equal for the passes of a loop."""


def dropped_passes(around: Neighbours) -> Iterator[Guess]:
    """Every result that may have to be added to what earlier passes through the same call gave."""
    graphs = around.capture.ranks
    unread = [_unread(graph) for graph in graphs]
    for site in around.sites.values():
        if not site.tensors or site.node.op in COLLECTIVES or set(site.tensors) != set(site.position):
            continue
        earlier = {}
        for rank, var in site.tensors.items():
            rows = unread[rank].get(_call(graphs[rank].nodes[site.position[rank]]), ())
            alike = (out for index, out in rows if index < site.position[rank])
            earlier[rank] = tuple(out for out in alike if graphs[rank].types[out] == graphs[rank].types[var])
        if all(earlier.values()):
            yield RULE, Accumulate(site.tensors, earlier), site, LIKELY


def _unread(graph: Graph) -> dict[_Call, list[tuple[int, Var]]]:
    """By call, the results that nothing reads, each with the index of its node."""
    read = {operand for node in graph.nodes for operand in node.operands()} | set(graph.outputs.values())
    found: dict[_Call, list[tuple[int, Var]]] = {}
    for index, node in enumerate(graph.nodes):
        if node.stack >= 0 and len(node.outs) == 1 and node.outs[0] not in read:
            found.setdefault(_call(node), []).append((index, node.outs[0]))
    return found


def _call(node: Node) -> _Call:
    return node.op, node.stack, node.forward, node.phase


def added_to_earlier(program: Program, span: Span) -> Iterator[Draft]:
    """Add the value of an expression in a loop to the name that it overwrites, which has a value before the loop."""
    value = program.expression(span)
    loop = (
        next((each for each in program.ancestors(value) if isinstance(each, ast.For | ast.While)), None)
        if value
        else None
    )
    if value is None or loop is None:
        return
    names = _assigned(program.statement(value))
    for statement in ast.walk(loop):
        if not isinstance(statement, ast.Assign) or not (total := assigned_name(statement, statement.value)):
            continue
        made = statement.value
        here = any(each is value for each in ast.walk(made)) or (isinstance(made, ast.Name) and made.id in names)
        if here and not _reads(made, total) and _has_value(program, loop, total):
            text = program.source(made)
            text = text if isinstance(made, ast.BinOp | ast.Call | ast.Name | ast.Subscript) else f"({text})"
            place = program.span(made)
            yield Draft(f"write {total} + {text}", (TextEdit(place, f"{total} + {text}"),), place)


def _assigned(statement: ast.stmt | None) -> set[str]:
    """Every name that a statement assigns."""
    targets = statement.targets if isinstance(statement, ast.Assign) else ()
    return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}


def _reads(value: ast.expr, name: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(value))


def _has_value(program: Program, loop: ast.For | ast.While, name: str) -> bool:
    """Whether the function assigns a name before a loop."""
    function = program.function(loop)
    statements = ast.walk(function) if function is not None else ()
    return any(
        isinstance(each, ast.Assign) and each.lineno < loop.lineno and name in _assigned(each) for each in statements
    )
