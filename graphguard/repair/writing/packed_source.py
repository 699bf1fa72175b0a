"""Cutting a parameter part by part, as text: ``w.chunk(ranks)[rank]`` of each of the projections that it holds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from graphguard.ir import Span
from graphguard.repair.text.program import Program
from graphguard.repair.writing.source import Draft
from graphguard.report.diagnostics import TextEdit

_PARTS: Final = (2, 3)
"""Gate and up; query, key and value.  Which of them is meant the proof decides."""


def cut_by_parts(program: Program, span: Span) -> Iterator[Draft]:
    """A rank's chunk of a tensor as its chunk of every part of that."""
    value = program.expression(span)
    chosen = (
        next((node for node in program.ancestors(value) if isinstance(node, ast.Subscript)), None) if value else None
    )
    call = value if isinstance(value, ast.Call) else None
    if isinstance(value, ast.Subscript) and isinstance(value.value, ast.Call):
        chosen, call = value, value.value
    if call is None or chosen is None or chosen.value is not call or not isinstance(call.func, ast.Attribute):
        return
    if call.func.attr != "chunk":
        return
    is_method = not (isinstance(call.func.value, ast.Name) and call.func.value.id == "torch")
    whole = call.func.value if is_method else call.args[0]
    rest = call.args if is_method else call.args[1:]
    texts = [program.source(arg) for arg in rest]
    words = [f"{word.arg}={program.source(word.value)}" for word in call.keywords]
    along = [f"dim={program.source(word.value)}" for word in call.keywords if word.arg == "dim"] or texts[1:2]
    index = program.source(chosen.slice)
    for parts in _PARTS:
        each = f"part.chunk({', '.join([*texts, *words])})[{index}]"
        apart = f"{program.source(whole)}.chunk({', '.join([str(parts), *along])})"
        text = f"torch.cat({', '.join([f'[{each} for part in {apart}]', *along])})"
        yield Draft(f"cut each of the {parts} parts by itself", (TextEdit(program.span(chosen), text),))
