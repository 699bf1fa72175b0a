"""What number literals mean."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from graphguard.rules.scalars import exact, inverse


@pytest.mark.parametrize(
    ("literal", "meaning"),
    [
        (0.1, Fraction(1, 10)),
        (1e-12, Fraction(1, 10**12)),
        (1 / 3, Fraction(1, 3)),
        (1 - 0.9, Fraction(1, 10)),
        (1 / 0.9, Fraction(10, 9)),
        (64**-0.5, Fraction(1, 8)),
        (7, Fraction(7)),
        (0.0, Fraction(0)),
        (-2.5, Fraction(-5, 2)),
    ],
)
def test_simple_numbers(literal: float, meaning: Fraction) -> None:
    assert exact(literal) == meaning


@pytest.mark.parametrize("dim", [2, 3, 6, 24, 80, 96, 128, 192, 576])
def test_a_root_is_the_same_number_however_it_is_written(dim: int) -> None:
    assert exact(dim**-0.5) == exact(1 / math.sqrt(dim)) == inverse(math.sqrt(dim))
    assert exact(math.sqrt(dim)) == dim * exact(dim**-0.5)


@pytest.mark.parametrize("literal", [0.1, 1 / 3, 128**-0.5, math.pi, math.e**-7, 0.30000001192092896, 1e-30, 12345.678])
def test_the_error_is_below_rounding(literal: float) -> None:
    assert abs(float(exact(literal)) - literal) <= 1e-15 * literal


def test_different_numbers_stay_different() -> None:
    assert exact(math.pi) != exact(math.nextafter(math.pi, 4))
    assert exact(0.1) != exact(0.1000001)
    assert exact(128**-0.5) != exact(127**-0.5)


def test_infinities_stay_floats() -> None:
    assert exact(-math.inf) == -math.inf
    assert math.isnan(inverse(0))
