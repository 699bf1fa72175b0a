"""What numbers are called in messages."""

from fractions import Fraction

import pytest

from graphguard.ir import Capture, CheckRef, Span
from graphguard.repair.messages import factor_text
from graphguard.repair.program import parse
from graphguard.repair.vocabulary import factor_name, passes_name


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
