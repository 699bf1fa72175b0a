"""Sizes of numbers: of what is never negative, under even powers, and in norms of norms; what they denote, element by element."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from benchmarks.trust.fuzz import closed
from graphguard.relations.functions.piecewise import equal
from graphguard.relations.numbers import Numbers
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.denotation import Denotation
from graphguard.relations.terms.kernels import Universe

SHAPE = (3, 4)


def size(a: Any, x: Any) -> Any:
    return a.apply("abs", (), [x], "float")


def sign(a: Any, x: Any) -> Any:
    return a.apply("sign", (), [x], "float")


def power(a: Any, x: Any, exponent: Fraction | int) -> Any:
    return a.power(x, Fraction(exponent))


def third_norm(a: Any, x: Any) -> Any:
    return power(a, a.sum(power(a, size(a, x), 3), [1]), Fraction(1, 3))


Form = Callable[[Any, Any], Any]
EQUAL: dict[str, tuple[Form, Form]] = {
    "of a square": (lambda a, x: size(a, power(a, x, 2)), lambda a, x: power(a, x, 2)),
    "of a size": (lambda a, x: size(a, size(a, a.scale(x, Fraction(-2)))), lambda a, x: a.scale(size(a, x), Fraction(2))),
    "of a negative multiple": (lambda a, x: size(a, a.scale(a.exp(x), Fraction(-3))), lambda a, x: a.scale(a.exp(x), Fraction(3))),
    "of a sum of sizes": (lambda a, x: size(a, a.sum(size(a, x), [0])), lambda a, x: a.sum(size(a, x), [0])),
    "of the largest size": (lambda a, x: size(a, a.max_over(size(a, x), [1])), lambda a, x: a.max_over(size(a, x), [1])),
    "of a multiple": (lambda a, x: size(a, a.scale(x, Fraction(-2))), lambda a, x: a.scale(size(a, x), Fraction(2))),
    "a sign of a multiple": (lambda a, x: sign(a, a.scale(x, Fraction(-2))), lambda a, x: a.scale(sign(a, x), Fraction(-1))),
    "of nothing": (lambda a, x: size(a, a.add([x, a.scale(x, Fraction(-1))])), lambda a, x: a.full(SHAPE, Fraction(0), "float")),
    "squared": (lambda a, x: power(a, size(a, a.scale(x, Fraction(3))), 2), lambda a, x: a.scale(power(a, x, 2), Fraction(9))),
    "to the power of minus four": (lambda a, x: power(a, size(a, a.scale(x, Fraction(2))), -4), lambda a, x: a.scale(power(a, x, -4), Fraction(1, 16))),
    "a norm of norms": (lambda a, x: power(a, size(a, third_norm(a, x)), 3), lambda a, x: a.sum(power(a, size(a, x), 3), [1])),
}  # fmt: skip
OTHER: dict[str, tuple[Form, Form]] = {
    "of a number": (size, lambda a, x: x),
    "of the largest": (lambda a, x: size(a, a.max_over(x, [1])), lambda a, x: a.max_over(x, [1])),
    "of the least size's opposite": (
        lambda a, x: size(a, a.max_over(a.scale(size(a, x), Fraction(-1)), [1])),
        lambda a, x: a.max_over(a.scale(size(a, x), Fraction(-1)), [1]),
    ),
    "cubed": (lambda a, x: power(a, size(a, x), 3), lambda a, x: power(a, x, 3)),
    "of a difference": (
        lambda a, x: size(a, a.add([power(a, x, 2), a.scale(a.exp(x), Fraction(-1))])),
        lambda a, x: a.add([power(a, x, 2), a.scale(a.exp(x), Fraction(-1))]),
    ),
}


@pytest.mark.parametrize("name", EQUAL)
def test_the_size_is_known(name: str) -> None:
    universe = Universe()
    a = NormalForm(universe)
    left, right = (form(a, a.leaf("x", SHAPE, "float")) for form in EQUAL[name])
    assert equal(universe, left, right)


@pytest.mark.parametrize("name", OTHER)
def test_the_size_is_not_known(name: str) -> None:
    universe = Universe(16)
    a = NormalForm(universe)
    left, right = (form(a, a.leaf("x", SHAPE, "float")) for form in OTHER[name])
    assert not equal(universe, left, right)


@pytest.mark.parametrize("form", [form for pair in (EQUAL | OTHER).values() for form in pair])
def test_every_form_denotes_what_it_computes(form: Form) -> None:
    data = np.random.default_rng(3).uniform(-1.5, 1.5, SHAPE)
    universe, numbers = Universe(), Numbers()
    a = NormalForm(universe)
    found = form(a, a.leaf("x", SHAPE, "float"))
    tables = {kernel.id: table for kernel, table in universe.tables}
    value = form(numbers, numbers.literal(data))
    np.testing.assert_allclose(Denotation({"x": data}, closed, tables).value(found), value.array, rtol=1e-9)
