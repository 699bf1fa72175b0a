"""Rounding what is an integer already changes nothing; rounding anything else is kept."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from graphguard.relations.functions.piecewise import equal
from graphguard.relations.prove.magnitudes import is_whole
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.values import NormalValue


@pytest.fixture
def algebra() -> NormalForm:
    return NormalForm()


def test_an_integer_through_a_float_and_back(algebra: NormalForm) -> None:
    index = algebra.leaf("i", (6,), "int", 0, 4)
    twice = algebra.add([index, index])
    for v in (index, twice, algebra.multiply(index, twice), algebra.iota(6)):
        assert equal(algebra.universe, algebra.number(algebra.number(v, "float"), "int"), v)


@pytest.mark.parametrize("name", ["floor", "round"])
def test_functions_of_whole_floats(algebra: NormalForm, name: str) -> None:
    count = algebra.number(algebra.leaf("b", (6,), "bool"), "float")
    assert equal(algebra.universe, algebra.apply(name, (), [count], "float"), count)


def test_floats_are_rounded(algebra: NormalForm) -> None:
    x = algebra.leaf("x", (6,), "float")
    index = algebra.number(algebra.leaf("i", (6,), "int"), "float")
    for v in (x, algebra.scale(index, Fraction(1, 2)), algebra.add([x, index]), algebra.power(index, Fraction(-1))):
        assert not equal(algebra.universe, algebra.apply("floor", (), [v], "float"), v)


Made = Callable[[NormalForm, NormalValue, NormalValue], NormalValue]
WHOLE: dict[str, Made] = {
    "integer": lambda a, n, x: n,
    "product": lambda a, n, x: a.multiply(n, n),
    "count": lambda a, n, x: a.sum(a.number(a.compare("lt", x, n), "float"), [1]),
    "largest": lambda a, n, x: a.max_over(a.add([n, n]), [1]),
}
FRACTIONS: dict[str, Made] = {
    "float": lambda a, n, x: x,
    "square": lambda a, n, x: a.multiply(x, x),
    "sum with an integer": lambda a, n, x: a.add([x, n]),
    "half": lambda a, n, x: a.scale(n, Fraction(1, 2)),
    "reciprocal": lambda a, n, x: a.power(n, Fraction(-1)),
    "masked": lambda a, n, x: a.multiply(a.number(a.compare("lt", x, n), "float"), x),
    "sum of masked ones": lambda a, n, x: a.sum(a.multiply(a.number(a.compare("lt", x, n), "float"), x), [1]),
    "largest": lambda a, n, x: a.max_over(x, [1]),
    "table": lambda a, n, x: a.literal(np.array([[0.5, 1.0], [2.0, 3.0]])),
    "root": lambda a, n, x: a.power(a.full((2,), Fraction(2), "float"), Fraction(1, 2)),
}


def made(a: NormalForm, how: Made) -> NormalValue:
    return how(a, a.number(a.leaf("n", (3, 4), "int"), "float"), a.leaf("x", (3, 4), "float"))


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers_as_floats(algebra: NormalForm, name: str) -> None:
    assert is_whole(algebra.universe, made(algebra, WHOLE[name]))


@pytest.mark.parametrize("name", FRACTIONS)
def test_numbers_with_fractions_are_none(algebra: NormalForm, name: str) -> None:
    assert not is_whole(algebra.universe, made(algebra, FRACTIONS[name]))
