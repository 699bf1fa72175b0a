"""Where a collective is told of whose result nobody reads: where a helper that hands its result on is called, not within it."""

from __future__ import annotations

import ast

from graphguard.ir import Graph, Node, Span
from graphguard.repair.text.frames import Sources
from graphguard.repair.text.program import Function, Program, first_operand


def called_in_vain(graph: Graph, node: Node, sources: Sources) -> Span | None:
    """The innermost place of a collective that is not within a function which gives back what comes of it."""
    frames = sources.frames(graph, node)
    for frame in frames[:-1]:
        program = sources.program(frame.span.file)
        call = program.expression(frame.span) if program is not None else None
        if program is None or call is None or not _hands_on(program, call):
            return frame.span
    return frames[-1].span if frames else None


def _hands_on(program: Program, call: ast.expr) -> bool:
    """Whether the function around a call returns what the call gives, or one of the names that it writes to, or what is made of these."""
    function = program.function(call)
    if function is None:
        return False
    made = {id(call)}
    written = first_operand(call)  # the others are read alone
    named = ast.walk(written) if written is not None else ()
    names = {node.id for node in named if isinstance(node, ast.Name)} & _assigned(function)
    for statement in function.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Assign) and node.lineno >= call.lineno and _reads(node.value, names, made):
                names |= {each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    returned = (node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value is not None)
    return any(_reads(value, names, made) for value in returned)


def _assigned(function: Function) -> set[str]:
    """The names that a function gives values of its own."""
    return {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _reads(value: ast.expr, names: set[str], made: set[int]) -> bool:
    return any(id(node) in made or (isinstance(node, ast.Name) and node.id in names) for node in ast.walk(value))
