"""Gathering the ranks' parts of a tensor, as text."""

from __future__ import annotations

from collections.abc import Iterator

from graphguard.ir import Capture, Span
from graphguard.repair.graph.edits import InsertGather
from graphguard.repair.text.program import Program, assigned_name
from graphguard.repair.text.vocabulary import distributed_name
from graphguard.repair.writing.source import Draft, groups_for
from graphguard.report.diagnostics import TextEdit


def gathered(program: Program, span: Span, edit: InsertGather, capture: Capture) -> Iterator[Draft]:
    """Every rank gets the parts of all, joined, as soon as a tensor exists: behind the statement that names it, else before the one that reads it."""
    value, dist = program.expression(span), distributed_name(program)
    statement = program.statement(value) if value is not None else None
    if value is None or statement is None or dist is None:
        return
    function = program.function(value)
    own = assigned_name(statement, value)
    name, parts = own or program.fresh("own", function), program.fresh("parts", function)
    indent, start, end = program.indent(statement), program.span(statement), statement.end_lineno or statement.lineno
    line = end + 1 if own else start.line
    at = Span(program.file, line, 1, line, 1)
    for group in groups_for(program, value, edit.axis, capture):
        over = f", group={group}" if group else ""
        lines = [] if own else [f"{name} = {program.source(value)}"]
        lines += [
            f"{parts} = [torch.empty_like({name}) for _ in range({dist}.get_world_size({group}))]",
            f"{dist}.all_gather({parts}, {name}.contiguous(){over})",
        ]
        whole = f"torch.cat({parts}, {edit.dim})"
        lines += [f"{name} = {whole}"] if own else []
        text = "".join(f"{indent}{each}\n" for each in lines)
        edits = (TextEdit(at, text), *(() if own else (TextEdit(program.span(value), whole),)))
        yield Draft(f"gather {own or program.source(value)} over '{edit.axis}'", edits)
