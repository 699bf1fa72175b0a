"""What number literals mean."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from graphguard.rules.basis.scalars import exact, inverse


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


@pytest.mark.parametrize(
    "literal",
    [0.1, 1 / 3, 128**-0.5, math.log(2), 3 / math.log(10), math.pi, math.e**-7, 0.30000001192092896, 1e-30, 12345.678],
)
def test_the_error_is_below_rounding(literal: float) -> None:
    assert abs(float(exact(literal)) - literal) <= 1e-15 * literal


@pytest.mark.parametrize("base", [2, 10])
def test_a_logarithm_is_the_same_number_however_it_is_written(base: int) -> None:
    logarithm = math.log(base)
    assert exact(logarithm) * exact(1 / logarithm) == 1
    assert exact(1 / logarithm) == inverse(logarithm) == exact(math.log(math.e, base))
    assert exact(logarithm / 8) == exact(logarithm) / 8
    assert exact(-3 / logarithm) == -3 * inverse(logarithm)
    assert exact(math.log(base**5)) == 5 * exact(logarithm)


def test_what_is_near_a_logarithm_is_none() -> None:
    assert exact(0.693147) == Fraction(693147, 10**6)
    assert exact(math.nextafter(math.log(2), 1) * (1 + 1e-14)) != exact(math.log(2))
    assert exact(math.log(2)) * exact(1 / math.log(10)) != 1
    assert exact(math.log(3)) * exact(1 / math.log(3)) != 1


def test_different_numbers_stay_different() -> None:
    assert exact(math.pi) != exact(math.nextafter(math.pi, 4))
    assert exact(0.1) != exact(0.1000001)
    assert exact(128**-0.5) != exact(127**-0.5)


def test_infinities_stay_floats() -> None:
    assert exact(-math.inf) == -math.inf
    assert math.isnan(inverse(0))
