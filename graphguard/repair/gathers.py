"""``torch.distributed.all_gather``, through which no gradient comes back, and that of ``torch.distributed.nn``, through which one does."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from graphguard.ir import Capture, Span, Var
from graphguard.refine.outcome import Location
from graphguard.repair.frames import Sources
from graphguard.repair.program import Program
from graphguard.repair.slices import JOINING, LAYOUT
from graphguard.repair.source import Draft
from graphguard.repair.vocabulary import import_line
from graphguard.report.diagnostics import TextEdit

_GATHER = "all_gather"
_DIFFERENTIABLE = "torch.distributed.nn.functional"


def without_gradient(capture: Capture, reader: Location, sources: Sources) -> Span | None:
    """The call of the first gather whose parts a rank's node reads, rearranged or joined, where it is one without a gradient."""
    graph = capture.ranks[reader.graph]
    producers, seen = graph.producers(), set[Var]()
    waiting = list(graph.nodes[reader.node].operands())
    while waiting:
        var = waiting.pop(0)
        index = producers.get(var)
        if index is None or var in seen:
            continue
        seen.add(var)
        node = graph.nodes[index]
        if node.op == "gg.all_gather" and node.phase == "forward":
            for frame in sources.frames(graph, node):
                program = sources.program(frame.span.file)
                if program is not None and _gather(program, frame.span) is not None:
                    return frame.span
        elif node.op in LAYOUT | JOINING:
            waiting += node.operands()
    return None


def differentiable(program: Program, span: Span) -> Iterator[Draft]:
    """Gather with a gradient instead, into the same name."""
    call = _gather(program, span)
    statement = None if call is None else program.parents.get(call)
    if call is None or not isinstance(statement, ast.Expr):
        return
    into, part, *rest = [*call.args, *(word.value for word in call.keywords if word.arg == "group")]
    if not isinstance(into, ast.Name) or len(rest) > 1:
        return
    match part:
        case ast.Call(func=ast.Attribute(value=kept, attr="detach"), args=[]):
            part = kept
    group = f", group={program.source(rest[0])}" if rest else ""
    name = _name_of(program)
    gathered = f"{name or _DIFFERENTIABLE}.all_gather({program.source(part)}{group})"
    edits = [TextEdit(program.span(statement), f"{into.id} = {gathered}")]
    if name is None:
        line, _ = import_line(program)
        edits.insert(0, TextEdit(Span(program.file, line + 1, 1, line + 1, 1), f"import {_DIFFERENTIABLE}\n"))
    yield Draft("gather with a gradient", tuple(edits), place=span)


def _gather(program: Program, span: Span) -> ast.Call | None:
    value = program.expression(span)
    if (
        not isinstance(value, ast.Call)
        or len(value.args) < 2
        or any(isinstance(arg, ast.Starred) for arg in value.args)
    ):
        return None
    name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
    return value if name == _GATHER and {word.arg for word in value.keywords} <= {"group"} else None


def _name_of(program: Program) -> str | None:
    """What the file calls the module with the differentiable gather, if it imports it."""
    for node in program.tree.body:
        for alias in node.names if isinstance(node, ast.Import) else ():
            if alias.name in (_DIFFERENTIABLE, "torch.distributed.nn"):
                return alias.asname or alias.name
    return None
