"""Sigmoids and hyperbolic functions that one program writes out, against those that stay closed; with what their gradients are made of."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from graphguard.relations.functions.piecewise import equal
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.denotation import Denotation
from graphguard.relations.terms.kernels import Universe
from graphguard.relations.terms.values import NormalValue
from graphguard.rules.basis.arithmetic import function, minus, negative, over, plus, square, times
from graphguard.rules.elements.activations import log_sigmoid, mish, silu, silu_backward, softplus, tanh_backward
from graphguard.rules.elements.elementwise import pow_base

Act = Callable[[NormalForm, NormalValue], NormalValue]
SHAPE = (3, 4)


def sigmoid(a: NormalForm, x: NormalValue) -> NormalValue:
    return function(a, "sigmoid", x)


def quotient(a: NormalForm, x: NormalValue) -> NormalValue:
    """1 / (1 + exp(-x))."""
    return over(a, 1, plus(a, 1, a.exp(negative(a, x))))


def grown(a: NormalForm, x: NormalValue) -> NormalValue:
    """exp(x) / (1 + exp(x))."""
    return over(a, a.exp(x), plus(a, 1, a.exp(x)))


def slope(a: NormalForm, x: NormalValue) -> NormalValue:
    """What autograd makes of ``1 / (1 + exp(-x))``: ``-(1 / u)^2 (-exp(-x))``."""
    return times(a, square(a, quotient(a, x)), a.exp(negative(a, x)))


def tangent(a: NormalForm, x: NormalValue) -> NormalValue:
    """(e^x - e^-x) / (e^x + e^-x)."""
    rising, falling = a.exp(x), a.exp(negative(a, x))
    return over(a, minus(a, rising, falling), plus(a, rising, falling))


def ones(a: NormalForm) -> NormalValue:
    return a.full(SHAPE, 1, "float")


SAME: dict[str, tuple[Act, Act]] = {
    "sigmoid": (sigmoid, quotient),
    "sigmoid of a growing exponential": (sigmoid, grown),
    "opposite": (lambda a, x: sigmoid(a, negative(a, x)), lambda a, x: minus(a, 1, quotient(a, x))),
    "multiple": (lambda a, x: sigmoid(a, a.scale(x, Fraction(3, 2))), lambda a, x: quotient(a, a.scale(x, Fraction(3, 2)))),
    "silu": (silu, lambda a, x: over(a, x, plus(a, 1, a.exp(negative(a, x))))),
    "gradient of sigmoid": (lambda a, x: times(a, sigmoid(a, x), minus(a, 1, sigmoid(a, x))), slope),
    "gradient of silu": (lambda a, x: silu_backward(a, ones(a), x), lambda a, x: plus(a, quotient(a, x), times(a, x, slope(a, x)))),
    "log sigmoid": (log_sigmoid, lambda a, x: negative(a, a.log(plus(a, 1, a.exp(negative(a, x)))))),
    "softplus": (softplus, lambda a, x: a.log(plus(a, 1, a.exp(x)))),
    "log of the opposite": (lambda a, x: a.log(minus(a, 1, sigmoid(a, x))), lambda a, x: negative(a, softplus(a, x))),
    "tanh": (lambda a, x: function(a, "tanh", x), tangent),
    "tanh by a sigmoid": (lambda a, x: function(a, "tanh", x), lambda a, x: minus(a, times(a, sigmoid(a, times(a, x, 2)), 2), 1)),
    "gradient of tanh": (lambda a, x: tanh_backward(a, ones(a), function(a, "tanh", x)), lambda a, x: minus(a, 1, square(a, tangent(a, x)))),
    "mish": (mish, lambda a, x: times(a, x, function(a, "tanh", a.log(plus(a, 1, a.exp(x)))))),
    "cosh": (lambda a, x: function(a, "cosh", x), lambda a, x: over(a, plus(a, a.exp(x), a.exp(negative(a, x))), 2)),
}  # fmt: skip
OTHER: dict[str, tuple[Act, Act]] = {
    "of the opposite": (sigmoid, lambda a, x: quotient(a, negative(a, x))),
    "of a multiple": (sigmoid, lambda a, x: quotient(a, a.scale(x, Fraction(2)))),
    "with two for one": (sigmoid, lambda a, x: over(a, 1, plus(a, 2, a.exp(negative(a, x))))),
    "without the square": (lambda a, x: times(a, sigmoid(a, x), minus(a, 1, sigmoid(a, x))), quotient),
    "silu for its gradient": (silu, lambda a, x: silu_backward(a, ones(a), x)),
    "tanh of half": (lambda a, x: function(a, "tanh", x), lambda a, x: minus(a, times(a, sigmoid(a, x), 2), 1)),
    "sinh for cosh": (lambda a, x: function(a, "cosh", x), lambda a, x: function(a, "sinh", x)),
}


@pytest.fixture
def a() -> NormalForm:
    universe = Universe(expand=12)
    universe.exponential = True
    return NormalForm(universe)


def denoted(value: NormalValue, data: np.ndarray) -> np.ndarray:
    """The elements of a normal form of ``x``."""
    known = {"sigmoid": lambda x: 1 / (1 + np.exp(-x)), "tanh": np.tanh, "cosh": np.cosh}
    return Denotation({"x": data}, lambda name, _, arrays: known[name](*arrays)).value(value)


@pytest.mark.parametrize("name", SAME)
def test_what_is_written_out_is_the_closed_function(a: NormalForm, name: str) -> None:
    closed, written = SAME[name]
    x = a.leaf("x", SHAPE, "float")
    assert equal(a.universe, closed(a, x), written(a, x))
    plain = NormalForm()
    data = np.random.default_rng(1).normal(size=SHAPE)
    wanted = denoted(closed(plain, plain.leaf("x", SHAPE, "float")), data)
    np.testing.assert_allclose(denoted(closed(a, x), data), wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", SAME)
def test_of_a_difference(a: NormalForm, name: str) -> None:
    closed, written = SAME[name]
    apart = minus(a, a.leaf("x", SHAPE, "float"), a.leaf("y", SHAPE, "float"))
    assert equal(a.universe, closed(a, apart), written(a, apart))


@pytest.mark.parametrize("name", OTHER)
def test_other_functions_differ(a: NormalForm, name: str) -> None:
    closed, written = OTHER[name]
    x = a.leaf("x", SHAPE, "float")
    assert not equal(a.universe, closed(a, x), written(a, x))


@pytest.mark.parametrize("turned", [False, True])
def test_divisors_of_the_same_exponentials_in_other_powers_do_not_go_round_in_circles(turned: bool) -> None:
    universe = Universe(expand=16)
    universe.exponential = True
    a = NormalForm(universe)
    x, y = (a.leaf(name, SHAPE, "float") for name in ("x", "y"))
    f, g = (a.exp(y), a.exp(x)) if turned else (a.exp(x), a.exp(y))
    squares = [square(a, each) for each in ((g, f) if turned else (f, g))]  # which is known first must not matter
    found = over(a, over(a, times(a, f, square(a, g)), plus(a, *squares)), plus(a, g, f))
    draw = np.random.default_rng(0)
    numbers = {name: draw.standard_normal(SHAPE) for name in ("x", "y")}
    e, h = (np.exp(numbers[name]) for name in (("y", "x") if turned else ("x", "y")))
    np.testing.assert_allclose(Denotation(numbers).value(found), e * h**2 / ((e**2 + h**2) * (e + h)))


@pytest.mark.parametrize("column", [0, 1])
def test_exponentials_of_one_index_stand_in_one_ratio(column: int) -> None:
    """``g^i / (g^i + g^(i + 4))`` is one number everywhere: taking one of the two out brings it back."""
    universe = Universe(expand=12)
    universe.exponential = True
    a = NormalForm(universe)
    rows, columns = (a.expand(a.reshape(a.iota(4), shape), (4, 4)) for shape in ((4, 1), (1, 4)))
    fading = pow_base(a, 31 / 32, plus(a, 1, plus(a, rows, a.scale(columns, 2))))
    halves = [a.slice(fading, 1, start, start + 2, 1) for start in (0, 2)]
    line = a.slice(plus(a, *halves), 1, column, column + 1, 1)
    assert equal(universe, over(a, line, line), a.full((4, 1), 1, "float"))
    one, other = (a.slice(half, 1, column, column + 1, 1) for half in halves)
    numbers, share = {"x": np.arange(1.0, 5.0).reshape(4, 1)}, 1 / (1 + (31 / 32) ** 4)
    for above, wanted in ((one, share), (other, 1 - share)):
        found = over(a, times(a, a.leaf("x", (4, 1), "float"), above), line)
        np.testing.assert_allclose(Denotation(numbers).value(found), numbers["x"] * wanted)
