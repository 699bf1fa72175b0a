"""Sums that a loop adds up: what is missing of them is missing behind the loop."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from graphguard.ir import Capture, Span
from graphguard.ops import operators
from graphguard.repair.graph.edits import Edit, InsertReduction, Scale
from graphguard.repair.graph.neighbours import Neighbours
from graphguard.repair.graph.slices import ADDING, Site
from graphguard.repair.text.program import Program, assigned_name
from graphguard.repair.writing.source import Draft, Reduce, groups_for, line_after

_SUMMING = operators(lambda op: op.sums or op.symbol in ("+", "-"))


def only_added_to(site: Site, around: Neighbours) -> bool:
    """Whether a sum is read by the next pass through the line that made it alone: it is not the whole sum yet."""
    if site.node.op not in ADDING or site.node.stack < 0:
        return False
    readers = around.readers_of(site)
    return bool(readers) and all(
        each.node.op in ADDING and each.node.stack == site.node.stack and min(each.position) == min(site.position)
        for each in readers
    )


def are_added_up(capture: Capture, edits: Iterable[Edit], rank: int) -> bool:
    """Whether something adds what one pass of a loop makes to what another makes, each known by the edit that would scale it."""
    passes = [{edit.tensors[rank]} for edit in edits if isinstance(edit, Scale) and rank in edit.tensors]
    for node in capture.ranks[rank].nodes:
        read = [made for made in passes if not made.isdisjoint(node.operands())]
        if len(read) > 1 and node.op in _SUMMING:
            return True
        for made in read:
            made.update(node.outs)
    return False


def reduced_behind_loop(program: Program, span: Span, edit: InsertReduction, capture: Capture) -> Iterator[Draft]:
    """Reduce the sum that an expression of a loop adds to, behind the loop."""
    added = _accumulator(program, span)
    if added is None:
        return
    name, statement = added
    loop = _outermost(program, statement, name)
    if loop is None:
        return
    for group in groups_for(program, statement, edit.axis, capture):
        line, imports = Reduce(program, group, edit.reduce)(name)
        yield Draft(
            f"all_reduce({name}) over '{edit.axis}' behind the loop", (line_after(program, loop, line), *imports)
        )


def _accumulator(program: Program, span: Span) -> tuple[str, ast.stmt] | None:
    """The name to which the statement of an expression adds something."""
    augmented, value = program.augmented(span), program.expression(span)
    match augmented or value:
        case ast.AugAssign(target=ast.Name(id=name), op=ast.Add()):
            return name, augmented  # type: ignore[return-value]
        case ast.BinOp(left=left, op=ast.Add(), right=right) as total:
            statement = program.statement(total)
            name = assigned_name(statement, total)
            if (
                statement is not None
                and name
                and any(isinstance(side, ast.Name) and side.id == name for side in (left, right))
            ):
                return name, statement
    return None


def _outermost(program: Program, statement: ast.stmt, name: str) -> ast.stmt | None:
    """The outermost loop around a statement in which nothing else is assigned to a name."""
    found = None
    for outer in program.ancestors(statement):
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            break
        if isinstance(outer, ast.For | ast.While):
            own = set(ast.walk(statement))
            if any(_assigns(each, name) for each in ast.walk(outer) if each not in own):
                break
            found = outer
    return found


def _assigns(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
