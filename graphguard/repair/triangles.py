"""What could be wrong with triangles: a causal mask of a rank's own rows whose diagonal is that of the first rank's."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from graphguard.ir import Span
from graphguard.repair.edits import MoveDiagonal
from graphguard.repair.neighbours import Guess, Neighbours
from graphguard.repair.program import Program
from graphguard.repair.slices import Site
from graphguard.repair.source import Draft
from graphguard.repair.vocabulary import rank_expressions
from graphguard.report.diagnostics import TextEdit

TRIANGLES = ("triu", "tril")


def triangles(around: Neighbours) -> Iterator[Guess]:
    """Every guess about triangles."""
    for site in around.sites.values():
        if site.node.op in {f"aten.{name}.default" for name in TRIANGLES}:
            yield from _at_triangle(site, around)


def _at_triangle(site: Site, around: Neighbours) -> Iterator[Guess]:
    """A rank's own rows and all columns, or the other way round: its triangle starts where its part does."""
    first = min(site.tensors)
    rows, columns = around.capture.ranks[first].types[site.tensors[first]].shape[-2:]
    if not isinstance(rows, int) or not isinstance(columns, int):
        return
    for axis, size in around.capture.mesh.items():
        sign = 1 if rows * size == columns else -1 if columns * size == rows else 0
        if size > 1 and sign:
            length = min(rows, columns)
            offsets = {rank: sign * length * around.capture.coordinates(rank)[axis] for rank in site.position}
            yield "wrong-shard", MoveDiagonal(site.position, offsets, axis, length), site, 1


def move_diagonal(program: Program, span: Span, edit: MoveDiagonal) -> Iterator[Draft]:
    """Let a triangle start where the rank's part starts: ``triu(1)`` becomes ``triu(1 + rank * 4)``."""
    value = program.expression(span)
    calls = [node for node in ast.walk(value) if isinstance(node, ast.Call)] if value is not None else []
    found = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in TRIANGLES]
    if value is None or len(found) != 1:
        return
    sign = "+" if max(edit.offsets.values()) > 0 else "-"
    for rank in rank_expressions(program, value, edit.axis):
        text = _moved(program, found[0], f"{sign} {rank} * {edit.length}")
        yield Draft(f"start at this rank's offset along '{edit.axis}'", (TextEdit(program.span(found[0]), text),))


def _moved(program: Program, call: ast.Call, offset: str) -> str:
    """A call of a triangle with an offset added to its diagonal."""
    function, method = program.source(call.func), _is_method(call)
    args = [program.source(each) for each in call.args]
    words = {each.arg: program.source(each.value) for each in call.keywords if each.arg}
    place = 0 if method else 1
    if "diagonal" in words or len(args) <= place:
        diagonal = words.pop("diagonal", "")
        words["diagonal"] = f"{diagonal} {offset}" if diagonal else offset.removeprefix("+ ").replace("- ", "-")
    else:
        args[place] = f"{args[place]} {offset}"
    return f"{function}({', '.join([*args, *(f'{name}={text}' for name, text in words.items())])})"


def _is_method(call: ast.Call) -> bool:
    """Whether the triangle is that of what the method is called on, and not of an argument."""
    return not (
        isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and call.func.value.id == "torch"
    )


def unmoved(edit: MoveDiagonal, name: str) -> str:
    """A triangle that is that of the first part on every rank: which part it masks, and which it should."""
    rank, offset = max(edit.offsets.items(), key=lambda item: abs(item[1]))
    what, start = "rows" if offset > 0 else "columns", abs(offset)
    now, needed = f"0..{edit.length - 1}", f"{start}..{start + edit.length - 1}"
    return f"'{name}' starts at the same diagonal on every rank: rank {rank} masks {what} {now}, needs {what} {needed} along axis '{edit.axis}'"
