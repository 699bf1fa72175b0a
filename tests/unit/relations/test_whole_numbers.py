"""Rounding what is an integer already changes nothing; rounding anything else is kept."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from benchmarks.trust.fuzz import closed
from graphguard.relations.functions.piecewise import equal
from graphguard.relations.prove.magnitudes import is_whole
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.denotation import Denotation
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


def test_multiples_of_a_divisor_are_divided_term_by_term(algebra: NormalForm) -> None:
    n, m = (algebra.leaf(name, (6,), "int") for name in "nm")
    count = algebra.sum(algebra.number(algebra.compare("eq", n, algebra.full((6,), Fraction(-100), "int")), "int"), [0])
    nothing = algebra.full((), Fraction(0), "int")
    assert algebra.same(algebra.floor_divide(algebra.scale(count, Fraction(3)), 3), count)
    assert algebra.same(algebra.remainder(algebra.scale(count, Fraction(3)), 3), nothing)
    sixfold = algebra.add([algebra.scale(n, Fraction(-6)), m])
    wanted = algebra.add([algebra.scale(n, Fraction(-2)), algebra.floor_divide(m, 3)])
    assert algebra.same(algebra.floor_divide(sixfold, 3), wanted)
    assert algebra.same(algebra.remainder(sixfold, 3), algebra.remainder(m, 3))
    assert not algebra.same(algebra.floor_divide(algebra.scale(n, Fraction(4)), 3), n)


@pytest.mark.parametrize("divisor", [2, 3, 5])
@pytest.mark.parametrize("factors", [(3, 1), (-6, 2), (5, -4), (10, 15), (-2, -3)])
def test_quotients_denote_floors(divisor: int, factors: tuple[int, int]) -> None:
    algebra, numbers = NormalForm(), np.random.default_rng(divisor)
    data = {name: numbers.integers(-20, 20, (3, 4)) for name in "nm"}
    first, second = (
        algebra.scale(algebra.leaf(name, (3, 4), "int"), Fraction(f)) for name, f in zip("nm", factors, strict=True)
    )
    total = algebra.add([first, second, algebra.expand(algebra.iota(4), (3, 4))])
    whole = factors[0] * data["n"] + factors[1] * data["m"] + np.arange(4)
    denotation = Denotation(data, closed)
    np.testing.assert_array_equal(denotation.value(algebra.floor_divide(total, divisor)), whole // divisor)
    np.testing.assert_array_equal(denotation.value(algebra.remainder(total, divisor)), whole % divisor)
