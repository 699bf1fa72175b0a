"""Repairs of parallelisation plans: the layouts that PyTorch's tensor-parallel styles are given, and entries that are missing."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from graphguard.ir import Span
from graphguard.repair.text.program import Function, Program
from graphguard.repair.writing.source import Draft
from graphguard.report.diagnostics import TextEdit

STYLES = frozenset({"ColwiseParallel", "RowwiseParallel"})


def output_layouts(program: Program, module: str, check: Span) -> Iterator[Draft]:
    """Let the style of a module, else of any, give whole tensors: without ``output_layouts``, or with ``Replicate()``; first in plans of the check itself."""
    entries = list(_entries(program, check))
    matching = [entry for entry in entries if _matches(entry[0], module)]
    for _, style in [*matching, *(entry for entry in entries if entry not in matching)]:
        name = style.func.id if isinstance(style.func, ast.Name) else ""
        if name not in STYLES:
            continue
        place = program.span(style)
        others = [word for word in style.keywords if word.arg != "output_layouts"]
        kept = ", ".join([*(program.source(arg) for arg in style.args), *(_word(program, word) for word in others)])
        if name == "RowwiseParallel" and len(others) < len(style.keywords):
            yield Draft(f"{name}({kept}) in the plan", (TextEdit(place, f"{name}({kept})"),), place)
        whole = f"{name}({kept}{', ' if kept else ''}output_layouts=Replicate())"
        yield Draft(f"{whole} in the plan", (TextEdit(place, whole), *imported(program, "Replicate")), place)


def sequence_parallel(program: Program, module: str, check: Span) -> Iterator[Draft]:
    """Add a module that works on a part of the sequence to the plan, so that its parameters' gradients are reduced; first to plans of the check itself."""
    for plan in _plans(program, check):
        keys = {key.value for key in plan.keys if isinstance(key, ast.Constant)}
        first = plan.keys[0]
        if first is None or not module or module in keys:
            continue
        at = program.span(first)
        start = Span(at.file, at.line, at.column, at.line, at.column)
        lines = at.line != plan.lineno
        gap = "\n" + " " * (at.column - 1) if lines else " "
        entry = f'"{module}": SequenceParallel(),{gap}'
        edits = (TextEdit(start, entry), *imported(program, "SequenceParallel"))
        yield Draft(f'"{module}": SequenceParallel() in the plan', edits, start)


def _plans(program: Program, check: Span) -> list[ast.Dict]:
    """The plans of a file: those within the function of a check, those that no function has, then the others; none of those that another check has."""
    found = [
        node
        for node in ast.walk(program.tree)
        if isinstance(node, ast.Dict) and node.keys and any(_is_style(value) for value in node.values)
    ]
    own = program.enclosing_function(check) if check.file == program.file else None

    def distance(plan: ast.Dict) -> int:
        functions = [outer for outer in program.ancestors(plan) if isinstance(outer, Function)]
        return 0 if own in functions else 1 if not functions else 2

    foreign = {outer for outer in ast.walk(program.tree) if isinstance(outer, Function) and _is_check(outer)} - {own}
    return sorted((plan for plan in found if foreign.isdisjoint(program.ancestors(plan))), key=distance)


def _is_check(function: Function) -> bool:
    """Whether a function is declared as a check."""
    calls = (each.func for each in function.decorator_list if isinstance(each, ast.Call))
    return any(isinstance(call, ast.Attribute | ast.Name) and _last(call) == "check" for call in calls)


def _last(name: ast.Attribute | ast.Name) -> str:
    return name.attr if isinstance(name, ast.Attribute) else name.id


def _is_style(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in STYLES


def _entries(program: Program, check: Span) -> Iterator[tuple[str, ast.Call]]:
    for plan in _plans(program, check):
        for key, value in zip(plan.keys, plan.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str) and isinstance(value, ast.Call):
                yield key.value, value


def _matches(key: str, module: str) -> bool:
    wanted, path = key.split("."), module.split(".")
    return len(wanted) == len(path) and all(one in ("*", other) for one, other in zip(wanted, path, strict=True))


def _word(program: Program, word: ast.keyword) -> str:
    return f"{word.arg}={program.source(word.value)}"


def imported(program: Program, name: str) -> tuple[TextEdit, ...]:
    """The import of a name, where the file lacks it: beside the styles, or beside the placements."""
    module = "torch.distributed.tensor" if name in ("Replicate", "Partial") else "torch.distributed.tensor.parallel"
    known = {
        alias.asname or alias.name
        for node in program.tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    if name in known:
        return ()
    last = max(
        (node.end_lineno or 0 for node in program.tree.body if isinstance(node, ast.Import | ast.ImportFrom)), default=0
    )
    return (TextEdit(Span(program.file, last + 1, 1, last + 1, 1), f"from {module} import {name}\n"),)
