"""What numbers are called in messages."""

from fractions import Fraction

import pytest

from graphguard.ir import Capture, CheckRef, Span
from graphguard.repair.findings.messages import asked_for
from graphguard.repair.text.program import first_operand, parse
from graphguard.repair.text.vocabulary import factor_name, passes_name
from graphguard.repair.writing.words import axis_told, factor_text, operation


def capture(**mesh: int) -> Capture:
    return Capture(CheckRef("a::b", "b", Span("model.py", 1)), mesh, (), None, (), ())


@pytest.mark.parametrize(
    ("factor", "text"),
    [
        (Fraction(2), "dp = 2"),
        (Fraction(1, 2), "1/dp = 1/2"),
        (Fraction(235416, 665857), "1/sqrt(8) = 0.353553"),
        (Fraction(2**0.5).limit_denominator(1 << 20), "sqrt(2) = 1.41421"),
        (Fraction((2 / 3) ** 0.5).limit_denominator(1 << 20), "sqrt(2/3) = 0.816497"),
        (Fraction(3.14159265358979).limit_denominator(1 << 20), "3.14159"),
        (Fraction(3, 7), "3/7"),
    ],
)
def test_a_factor_is_told_as_what_it_is(factor: Fraction, text: str) -> None:
    assert factor_text(factor, capture(dp=2)) == text


def test_a_factor_goes_by_the_name_that_the_author_gave_it() -> None:
    assert factor_text(Fraction(2), capture(pp=2), count="STEPS") == "STEPS = 2"
    assert factor_text(Fraction(1, 2), capture(pp=2), count="STEPS") == "1/STEPS = 1/2"


LOOP = """
STEPS, WIDTH = 4, 4

def step(batch):
    total = 0
    parts = batch.chunk(STEPS)
    for part in parts:
        total = total + loss(part)
    return total / WIDTH
"""


def test_the_constant_is_the_one_of_the_loop_around_or_of_the_expression() -> None:
    program = parse("model.py", LOOP)
    assert program is not None
    within, behind = (program.expression(span_of(text)) for text in ("loss(part)", "total / WIDTH"))
    assert within is not None
    assert behind is not None
    assert passes_name(program, within, Fraction(4)) == "STEPS"
    assert passes_name(program, within, Fraction(1, 4)) == "STEPS"
    assert not passes_name(program, within, Fraction(3))
    assert not passes_name(program, behind, Fraction(4))
    assert factor_name(program, behind, Fraction(4)) == "WIDTH"


def span_of(text: str) -> Span:
    start = LOOP.index(text)
    line, column = LOOP.count("\n", 0, start) + 1, start - LOOP.rfind("\n", 0, start)
    return Span("model.py", line, column, line, column + len(text))


def test_a_gradient_that_the_program_asks_for_has_no_name_of_its_own() -> None:
    name = "loss.backward()"
    assert asked_for(name, f"'{name}' is 2 times the mean") == f"a gradient that '{name}' computes is 2 times the mean"
    assert asked_for("backward_loss", "'backward_loss' is 2 times the mean") == "'backward_loss' is 2 times the mean"


def test_a_function_of_a_module_works_on_its_argument_and_not_on_the_module() -> None:
    program = parse("a.py", "torch.nn.utils.clip_grad_norm_(weights, 1.0)\nx.mul_(2)\n")
    assert program is not None
    told = [first_operand(statement.value) for statement in program.tree.body]  # type: ignore[attr-defined]
    assert [program.source(operand) for operand in told if operand is not None] == ["weights", "x"]


def test_bits_that_are_read_as_another_type_are_not_just_a_view() -> None:
    assert operation("aten.view.dtype") == "view(dtype)"
    assert operation("aten.view.default") == "view"


@pytest.mark.parametrize(
    ("text", "axis"),
    [
        ("it is 1/dp = 1/2 of what it should be", "dp"),
        ("which counts it tp = 2 times", "tp"),
        ("it is pp or tp = 2 times too large", "tp"),
        ("it is 1/(dp*tp) = 1/4 times what the specification computes", "dp"),
        ("it is one = 2 times too large", ""),  # an axis of one rank is no factor
        ("is divided by PARTS = 2", ""),
        ("'y' is a partial sum over axis 'tp'", ""),
        ("'tp' is 2 times what the specification computes", ""),
    ],
)
def test_by_which_axis_a_text_tells_a_factor(text: str, axis: str) -> None:
    assert axis_told(text, {"one": 1, "dp": 2, "tp": 2}) == axis
