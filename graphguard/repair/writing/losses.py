"""Losses that the program differentiates itself: a factor of a loss and of all gradients alike is one of the loss."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from fractions import Fraction

from graphguard.ir import Capture, Span
from graphguard.repair.text.program import Function, Program
from graphguard.repair.text.vocabulary import assignments, size_expressions
from graphguard.repair.writing import source
from graphguard.repair.writing.source import Draft


def scaled_losses(program: Program, factor: Fraction, capture: Capture) -> Iterator[Draft]:
    """Multiply each loss of a file by a number where it gets its name."""
    for name, function in _differentiated(program):
        for target, value in assignments(ast.walk(function)):
            if target == name:
                place = program.span(value)
                sizes = size_expressions(program, value, factor, capture)
                sizes.reverse()  # micro-batches first: ranks count in a loss through reductions, which have their own factors
                for draft in source.scale(program, place, factor, sizes):
                    yield Draft(draft.title, draft.edits, place)


def passed_losses(program: Program, times: int, passes: Callable[[Span], int], capture: Capture) -> Iterator[Draft]:
    """Divide each loss by the number of passes through the loop in which autograd adds up its gradients, where those are so many."""
    for name, function in _differentiated(program):
        for target, value in assignments(ast.walk(function)):
            loops = [outer for outer in program.ancestors(value) if isinstance(outer, ast.For)]
            if target != name or not loops or passes(program.span(value)) != times:
                continue
            place, factor = program.span(value), Fraction(1, times)
            sizes = [size for size in size_expressions(program, value, factor, capture) if "world_size" not in size]
            for draft in source.scale(program, place, factor, sizes):
                yield Draft(draft.title, draft.edits, place)


def _differentiated(program: Program) -> Iterator[tuple[str, Function]]:
    """The names of which autograd is asked for gradients, with the functions that ask."""
    for call in ast.walk(program.tree):
        match call:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="backward"), args=[]):
                pass
            case ast.Call(func=ast.Attribute(attr="grad") | ast.Name(id="grad"), args=[ast.Name(id=name), *_]):
                pass
            case _:
                continue
        function = program.function(call)
        if function is not None:
            yield name, function
