"""What could be wrong with triangles: a causal mask of a rank's own rows whose diagonal is that of the first rank's."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from graphguard.ir import Span
from graphguard.ops import aten
from graphguard.repair.graph.edits import MoveDiagonal
from graphguard.repair.graph.neighbours import Guess, Neighbours
from graphguard.repair.graph.slices import Site
from graphguard.repair.text.program import Program, further
from graphguard.repair.text.vocabulary import rank_expressions
from graphguard.repair.writing.source import Draft
from graphguard.report.diagnostics import TextEdit

TRIANGLES = ("triu", "tril")


def triangles(around: Neighbours) -> Iterator[Guess]:
    """Every guess about triangles."""
    for site in around.sites.values():
        if site.node.op in (aten.triu.default, aten.tril.default):
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
    sign = "+" if max(edit.offsets.values()) > 0 else "-"
    title = f"start at this rank's offset along '{edit.axis}'"
    for rank in rank_expressions(program, value, edit.axis) if value is not None else ():
        yield from diagonal_further(program, value, f"{sign} {rank} * {edit.length}", title)


def diagonal_further(program: Program, value: ast.expr | None, offset: str, title: str) -> Iterator[Draft]:
    """Add an offset to the diagonal of the one triangle of an expression."""

    def added(diagonal: ast.expr | None) -> str:
        return f"{program.source(diagonal)} {offset}" if diagonal else offset.removeprefix("+ ").replace("- ", "-")

    for call in _triangle(value):
        yield Draft(title, (TextEdit(program.span(call), _moved(program, call, added)),))


def diagonal_by(program: Program, value: ast.expr | None, count: int) -> Iterator[Draft]:
    """Let the one triangle of an expression start so many diagonals further up, by the number that stands there."""
    for call in _triangle(value):
        text = _moved(program, call, lambda diagonal: further(program, diagonal, count))
        yield Draft(f"write {text.rpartition('.')[2]}", (TextEdit(program.span(call), text),))


def _triangle(value: ast.expr | None) -> list[ast.Call]:
    """The one call of a triangle in an expression; none where there are more."""
    calls = [node for node in ast.walk(value) if isinstance(node, ast.Call)] if value is not None else []
    found = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in TRIANGLES]
    return found if len(found) == 1 else []


def _moved(program: Program, call: ast.Call, change: Callable[[ast.expr | None], str]) -> str:
    """A call of a triangle with another diagonal."""
    function, place = program.source(call.func), 0 if _is_method(call) else 1
    args = [program.source(each) for each in call.args]
    words = {each.arg: each.value for each in call.keywords if each.arg}
    texts = {name: program.source(each) for name, each in words.items()}
    if "diagonal" in words or len(args) <= place:
        texts["diagonal"] = change(words.get("diagonal"))
    else:
        args[place] = change(call.args[place])
    return f"{function}({', '.join([*args, *(f'{name}={text}' for name, text in texts.items())])})"


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
