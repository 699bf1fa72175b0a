"""The gathers of ``torch.distributed``, through which no gradient comes back, and that of ``torch.distributed.nn``, through which one does."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from graphguard.ir import Capture, Span, Var
from graphguard.ops import gg
from graphguard.refine.outcome import Location
from graphguard.repair.graph.slices import JOINING, LAYOUT
from graphguard.repair.text.frames import COPYING, Sources
from graphguard.repair.text.program import Program
from graphguard.repair.text.vocabulary import called_name, import_line
from graphguard.repair.writing.source import Draft
from graphguard.report.diagnostics import TextEdit

_INTO_TENSOR = frozenset({"all_gather_into_tensor", "_all_gather_base"})
_GATHERS = _INTO_TENSOR | {"all_gather"}
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
        if node.op == gg.all_gather and node.phase == "forward":
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
    while (
        isinstance(part, ast.Call)
        and isinstance(part.func, ast.Attribute)
        and part.func.attr in COPYING
        and not part.args
    ):
        part = part.func.value
    group = f", group={program.source(rest[0])}" if rest else ""
    name = _name_of(program)
    gathered = f"{name or _DIFFERENTIABLE}.all_gather({program.source(part)}{group})"
    line, _ = import_line(program)
    imported = TextEdit(Span(program.file, line + 1, 1, line + 1, 1), f"import {_DIFFERENTIABLE}\n")
    forms = ("torch.cat({})", "torch.stack({})") if called_name(call) in _INTO_TENSOR else ("{}", "list({})")
    for form in forms:
        edit = TextEdit(program.span(statement), f"{into.id} = {form.format(gathered)}")
        yield Draft("gather with a gradient", (edit,) if name else (imported, edit), place=span)


def _gather(program: Program, span: Span) -> ast.Call | None:
    value = program.expression(span)
    if (
        not isinstance(value, ast.Call)
        or len(value.args) < 2
        or any(isinstance(arg, ast.Starred) for arg in value.args)
    ):
        return None
    return value if called_name(value) in _GATHERS and {word.arg for word in value.keywords} <= {"group"} else None


def _name_of(program: Program) -> str | None:
    """What the file calls the module with the differentiable gather, if it imports it."""
    for node in program.tree.body:
        for alias in node.names if isinstance(node, ast.Import) else ():
            if alias.name in (_DIFFERENTIABLE, "torch.distributed.nn"):
                return alias.asname or alias.name
    return None
