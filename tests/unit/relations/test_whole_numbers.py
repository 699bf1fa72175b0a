"""Rounding what is an integer already changes nothing; rounding anything else is kept."""

from __future__ import annotations

from fractions import Fraction

import pytest

from graphguard.relations.normal_form import NormalForm
from graphguard.relations.piecewise import equal


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
