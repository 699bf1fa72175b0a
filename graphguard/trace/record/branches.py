"""Branches on whether there is anything: on a number of rows that only the data decides, or on whether a mask chooses any; and on what the program raises without.

Such a branch is recorded as where there is something, or where the program goes on.  The graph says so (``gg.assume``), so that numbers for which it is not so are not taken for the program's, and so
does every verdict.  Only what the program itself asks is answered: PyTorch's own code does without answers about sizes.

A script that evaluates before it trains asks for numbers that nobody computes, too.  There it goes on (``Asked.way_on``), and the report says which way.  Once it trains, a branch on numbers is recorded
one way as well, and the condition is a result that is compared (``Decision``): where all programs decide alike, they take the same way.
"""

from __future__ import annotations

import ast
import dis
import linecache
import os
import sys
from collections.abc import Set
from dataclasses import dataclass, replace
from functools import cache
from types import FrameType
from typing import Any, Final, Literal, TypeAlias

import sympy
import torch
from torch.fx.experimental import sym_node, symbolic_shapes
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv

from graphguard.ir.graph import Sym
from graphguard.ir.spans import Span
from graphguard.trace.calls import state
from graphguard.trace.calls.events import refs_in
from graphguard.trace.record.finiteness import read_in
from graphguard.trace.source.errors import DATA_DEPENDENT, TracingError, raised
from graphguard.trace.source.guards import Needed, needed_truth, way_on
from graphguard.trace.source.provenance import frame_at, is_shown
from graphguard.trace.source.sources import is_ours

_TRUTHS: Final = frozenset(("__bool__", "__index__"))
_ASKING: Final = frozenset(str(module.__file__) for module in (torch, torch._ops, sym_node, symbolic_shapes))  # noqa: SLF001
_JUMPS: Final = ("POP_JUMP", "UNARY_NOT", "TO_BOOL")
_ASKS: Final = (*_JUMPS, "JUMP_IF")
_SILENT: Final = ("CACHE", "COPY", "NOP", "EXTENDED_ARG")
_FINDS: Final = '"{}" in {} finds some{}, on every rank and every time: where {}, nothing is proved'
#: What comparing a whole number with a bound gives for all numbers above zero, where it gives the opposite for zero.
_PRESENCE: Final = {
    ("==", 0): False,
    ("!=", 0): True,
    (">", 0): True,
    ("<=", 0): False,
    (">=", 1): True,
    ("<", 1): False,
}


_COMPARISONS: Final = {
    sympy.StrictLessThan: "lt",
    sympy.LessThan: "le",
    sympy.StrictGreaterThan: "gt",
    sympy.GreaterThan: "ge",
    sympy.Eq: "eq",
    sympy.Ne: "ne",
}
_TURNED: Final = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


#: Why a condition is taken for known: there is something, there is something else, or numbers differ.
Reason: TypeAlias = Literal["present", "others", "differ"]


class Sizes(ShapeEnv):
    """What is known of sizes that the data decides; where the program asks whether there is anything, there is."""

    def evaluate_expr(self, orig_expr: Any, *args: Any, **kwargs: Any) -> Any:
        """The value of an expression over sizes; raises PyTorch's own error where only the data decides it."""
        compared = self._compared(orig_expr)
        if compared is not None:
            return sympy.true if compared else sympy.false
        try:
            return super().evaluate_expr(orig_expr, *args, **kwargs)
        except GuardOnDataDependentSymNode as error:
            recorder, frame = state.current_recorder(), _asking()
            needed = None if frame is None else _needed(frame)
            if recorder is not None and frame is not None and needed is not None and recorder.phase != "prelude":
                amount = _positive_where(orig_expr)
                if amount is not None:
                    question = _asked(frame)
                    assert question is not None
                    recorder.assume(Sym(str(amount)), truth=needed.truth, text=question.told(needed.truth, None))
                    return sympy.true if needed.truth else sympy.false
            found = None if frame is None else _counted(orig_expr, frame)
            if recorder is None or frame is None or found is None or recorder.phase == "prelude":
                raised(error)
                raise
            count, answer = found
            recorder.assume(Sym(str(count)), truth=True, text=_told(frame))
            return answer

    def _compared(self, expression: Any) -> bool | None:
        """What comparing a number that was read with another is: known where that is infinite, or where the program raises otherwise; None of anything else."""
        recorder, frame = state.current_recorder(), _asking()
        if recorder is None or frame is None or not _is_about_floats(expression):
            return None
        if recorder.phase == "prelude":
            return before_training(recorder, _asked(frame), {str(symbol) for symbol in expression.free_symbols})
        name, left, right = _COMPARISONS[type(expression)], expression.lhs, expression.rhs
        if left.is_number:
            name, left, right = _TURNED.get(name, name), right, left
        condition = getattr(torch, name)(self._tensor_of(left), self._operand(right))
        truth: bool | None = recorder.truth_where_finite(condition)
        question = _asked(frame) if truth is None else None
        if question is not None and question.needs is not None:
            truth = question.needs
            recorder.assume(recorder.ref(condition), truth=truth, text=question.told(truth, None))
        elif question is not None:
            truth = decided(recorder, question, condition)
        if truth is None and right.is_infinite:
            raise TracingError("trace-error", DATA_DEPENDENT)  # PyTorch would trip over it
        return truth

    def _operand(self, number: Any) -> Any:
        return float(number) if number.is_number else self._tensor_of(number)

    def _tensor_of(self, number: Any) -> torch.Tensor:
        return torch.scalar_tensor(torch.SymFloat(sym_node.SymNode(number, self, float, None)), dtype=torch.float64)


def _is_about_floats(expression: Any) -> bool:
    """Whether numbers that were read are compared, of which any may have a fraction, or one with infinity."""
    if type(expression) not in _COMPARISONS or not expression.free_symbols:
        return False
    sides = (expression.lhs, expression.rhs)
    if all(side.is_number for side in sides) or any(
        side.is_number and side.is_extended_real is False for side in sides
    ):
        return False
    return any(side.is_infinite or side.is_integer is not True for side in sides)


def presence(comparison: str, bound: object) -> bool | None:
    """What ``count <comparison> bound`` is of every count but zero, such as True of ``> 0``; None where that differs among them, or zero has it, too."""
    return _PRESENCE.get((comparison, bound)) if type(bound) is int else None


@dataclass(frozen=True, slots=True)
class Asked:
    """The truth of a tensor that a program asks for in ``function``, as it is written; ``needs``: what it must be for the program to go on, None where it goes on with either.

    ``span`` is where the operand of the condition stands that is asked; ``way_on``: what it is where the program stays in what it is in.
    """

    needs: bool | None
    written: str
    function: str
    span: Span
    way_on: bool = True

    @property
    def operand(self) -> Asked:
        """The question, written as its operand alone: ``a`` of ``if a or b``."""
        return replace(self, written=_written(self.span) or self.written)

    def told_before_training(self) -> str:
        """What is assumed where a script asks before it trains."""
        held, otherwise = ("holds", "not") if self.way_on else ("does not hold", "it does")
        return f'before training, "{self.written}" in {self.function} {held}: nobody computes the numbers, and a run where {otherwise} is another one'

    def told(self, truth: bool, why: Reason | None) -> str:
        """What is assumed where it is taken for ``truth``."""
        if why == "present":
            return _FINDS.format(self.written, self.function, "", "there are none")
        if why == "others":
            return _FINDS.format(self.written, self.function, " that are not", "all are")
        held, otherwise = ("holds", "does not") if truth else ("does not hold", "does")
        then = "nothing is proved" if self.needs is None else "the program raises"
        return f'"{self.written}" in {self.function} {held}, on every rank and every time: where it {otherwise}, {then}'


def asked() -> Asked | None:
    """The truth value that the program asks for; None where PyTorch's own code does, unless that raises by it, as distributions and losses check their arguments."""
    frame, named = _asker()
    if frame is None or named:
        return None
    return _asked(frame)


def _asked(frame: FrameType) -> Asked | None:
    place, needed = frame_at(frame.f_code, frame.f_lasti), _needed(frame)
    function = os.path.basename(place.span.file) if place.function == "<module>" else place.function
    if needed is not None:
        return Asked(needed.truth, needed.written, function, place.span, needed.truth)
    span = frame_at(frame.f_code, _decided_at(frame)).span
    return Asked(None, _question(place.span), function, span, way_on(span)) if is_shown(frame.f_code) else None


@dataclass(frozen=True, slots=True)
class Decision:
    """A branch on numbers that a script was recorded one way of: the output that its condition is, and where it asks."""

    output: str
    span: Span


def decided(recorder: Any, question: Asked, condition: torch.Tensor) -> bool | None:
    """The way that a script takes which trains, where numbers decide it; None of any other program's."""
    if recorder.decisions is None:
        return None
    if recorder.repeats is not None:
        recorder.repeats.shows("a branch on numbers")  # the copy of a layer would not ask for its own
    question = question.operand
    name = f'the branch on "{question.written}" at {os.path.basename(question.span.file)}:{question.span.line}'
    again = 1 + sum(one.span == question.span for one in recorder.decisions)
    one = Decision(f"{name} ({again})" if again > 1 else name, question.span)
    recorder.decisions.append(one)
    recorder.note("output", one.output, condition)
    recorder.assume(recorder.ref(condition), truth=question.way_on, text=question.told(question.way_on, None))
    return question.way_on


def before_training(recorder: Any, question: Asked | None, asked: Set[int | str]) -> bool | None:
    """What a script's run takes a condition for that it asks before it trains, as of an evaluation; None of any other program's, and of what rests on samples or draws to train on.

    ``asked``: the storages, or the numbers that were read, of which the condition is.
    """
    if question is None or recorder.decisions is None or not asked.isdisjoint(_for_training(recorder)):
        return None
    recorder.assumed.add(question.operand.told_before_training())
    return question.way_on


def _for_training(recorder: Any) -> set[int | str]:
    """The storages, and the numbers that were read, that rest on samples or draws of a program whose gradients are on."""
    found: set[int | str] = set(recorder.samples)
    for event in recorder.events:
        made = {ref.storage for ref in (*refs_in(event.outs), *event.written)}
        names = {event.outs.expr} if isinstance(event.outs, Sym) else set()
        read = {ref.storage for ref in refs_in((event.args, event.kwargs))} | set(read_in(event.args))
        if event.draw in recorder.draws.training or not found.isdisjoint(read):
            found |= made | names
    return found


def _needed(frame: FrameType) -> Needed | None:
    return needed_truth(frame_at(frame.f_code, _decided_at(frame)).span)


def _decided_at(frame: FrameType) -> int:
    """The instruction that made what a frame asks the truth of: a jump says only in which statement it is."""
    before = 0
    for one in dis.get_instructions(frame.f_code):
        if one.offset >= frame.f_lasti:
            return before if one.opname.startswith(_ASKS) else frame.f_lasti
        if one.opname not in _SILENT:
            before = one.offset
    return frame.f_lasti


def _asking() -> FrameType | None:
    """The program's frame that asks by a truth value or an index of PyTorch's number; None where other code asks."""
    frame, named = _asker()
    return frame if frame is not None and is_shown(frame.f_code) and named else None


def _asker() -> tuple[FrameType | None, bool]:
    """The frame that asks, and whether it does by a truth value or an index of PyTorch's number."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - as in provenance
    named = False
    while frame is not None and (frame.f_code.co_filename in _ASKING or is_ours(frame.f_code.co_filename)):
        named |= frame.f_code.co_name in _TRUTHS
        frame = frame.f_back
    return frame, named


def _told(frame: FrameType) -> str:
    place = frame_at(frame.f_code, frame.f_lasti)
    return Asked(None, _question(place.span), place.function, place.span).told(truth=True, why="present")


@cache
def _question(span: Span) -> str:
    """The condition that a place is in, as it is written, on one line; the place itself where it is in none."""
    lines = linecache.getlines(span.file)
    text = "".join(lines)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        tree = ast.Module([], [])
    tests = [node.test for node in ast.walk(tree) if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert)]
    around = [test for test in tests if test.lineno <= span.line <= (test.end_lineno or test.lineno)]
    written = ast.get_source_segment(text, around[-1]) if around else None
    if written is None:
        written = _written(span) or "".join(lines[span.line - 1 : (span.end_line or span.line)])
    return " ".join(written.split())


def _written(span: Span) -> str:
    """What stands at a place, where that is within one line."""
    within = (span.end_line or span.line) == span.line and span.end_column > span.column
    return linecache.getline(span.file, span.line)[span.column - 1 : span.end_column - 1] if within else ""


def _counted(expression: Any, frame: FrameType) -> tuple[Any, Any] | None:
    """The count that a question is about, and the answer where it is not zero."""
    if isinstance(expression, sympy.Expr):  # a length that Python wants as a number at once
        return (expression, sympy.Integer(1)) if _is_count(expression) and _only_compared(frame) else None
    if isinstance(expression, sympy.Eq | sympy.Ne):
        count = expression.lhs - expression.rhs
        count = count if _is_count(count) else -count
        return (count, sympy.true if isinstance(expression, sympy.Ne) else sympy.false) if _is_count(count) else None
    above = _positive_where(expression)
    if above is None:
        return None
    if _is_count(above):
        return above, sympy.true
    return (1 - above, sympy.false) if _is_count(1 - above) else None


def _positive_where(comparison: Any) -> Any:
    """The whole number that is above zero where a comparison of whole numbers holds, and nowhere else; None for anything else."""
    if not isinstance(comparison, sympy.core.relational.Relational):
        return None
    if not (comparison.lhs - comparison.rhs).is_integer:
        return None
    if isinstance(comparison, sympy.Eq):
        return 1 - (comparison.lhs - comparison.rhs) ** 2
    if isinstance(comparison, sympy.Ne):
        return (comparison.lhs - comparison.rhs) ** 2
    strict = isinstance(comparison, sympy.StrictGreaterThan | sympy.StrictLessThan)
    return comparison.gts - comparison.lts + (0 if strict else 1)


def _is_count(expression: Any) -> bool:
    """Whether an expression is zero where all its sizes are, and else above: a sum of products of sizes, none of them subtracted."""
    expanded = sympy.expand(expression)
    if not expanded.free_symbols or not all(symbol.is_integer for symbol in expanded.free_symbols):
        return False
    if not expanded.is_polynomial(*expanded.free_symbols):
        return False
    terms = sympy.Poly(expanded, *expanded.free_symbols).terms()
    return all(coefficient > 0 and any(powers) for powers, coefficient in terms)


def _only_compared(frame: FrameType) -> bool:
    """Whether the number that a frame's call gives is only asked whether it is zero, as in ``if len(rows):`` or ``len(rows) == 0``."""
    later = [one for one in dis.get_instructions(frame.f_code) if one.offset > frame.f_lasti and one.opname != "CACHE"][
        :2
    ]
    if later and later[0].opname.startswith(_JUMPS):
        return True
    if len(later) < 2 or not later[0].opname.startswith("LOAD_") or later[1].opname != "COMPARE_OP":
        return False
    return presence(str(later[1].argval).removeprefix("bool(").removesuffix(")"), later[0].argval) is not None
