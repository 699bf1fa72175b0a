"""Merged parts of a softmax: sigmoids of logarithms, logarithms of quotients, partial fractions; what they denote, element by element."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from benchmarks.trust.fuzz import closed
from graphguard.relations.facts.signs import never_negative
from graphguard.relations.functions.piecewise import equal
from graphguard.relations.numbers import Numbers
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.denotation import Denotation
from graphguard.relations.terms.kernels import Universe

ROWS, KEYS, DIM = 3, 8, 2
SHAPES = {"s": (ROWS, KEYS), "v": (KEYS, DIM)}


def minus(a: Any, x: Any, y: Any) -> Any:
    return a.add([x, a.scale(y, Fraction(-1))])


def column(a: Any, x: Any, width: int) -> Any:
    return a.expand(a.reshape(x, (ROWS, 1)), (ROWS, width))


def part(a: Any, leaves: dict[str, Any], low: int, high: int) -> tuple[Any, Any]:
    """Attention to some keys, and the logarithm of its sum of exponentials."""
    e = a.exp(a.slice(leaves["s"], 1, low, high))
    total = a.sum(e, [1])
    weights = a.multiply(e, column(a, a.power(total, Fraction(-1)), high - low))
    return a.contract([(weights, "rk"), (a.slice(leaves["v"], 0, low, high), "kd")], "rd"), a.log(total)


def sigmoid(a: Any, x: Any) -> Any:
    return a.apply("sigmoid", (), [x], "float")


def merge(a: Any, one: tuple[Any, Any], two: tuple[Any, Any]) -> tuple[Any, Any]:
    """As PyTorch's context parallelism and ring-flash-attention do it."""
    (out, lse), (other, more) = one, two
    step = column(a, sigmoid(a, minus(a, more, lse)), DIM)
    merged = minus(a, out, a.multiply(step, minus(a, out, other)))
    return merged, minus(a, lse, a.log(sigmoid(a, minus(a, lse, more))))


def weighted(a: Any, one: tuple[Any, Any], two: tuple[Any, Any]) -> tuple[Any, Any]:
    """With one weight and what it leaves."""
    (out, lse), (other, more) = one, two
    step = column(a, sigmoid(a, minus(a, more, lse)), DIM)
    rest = minus(a, a.full((ROWS, DIM), 1, "float"), step)
    lse = a.log(a.add([a.exp(lse), a.exp(more)]))
    return a.add([a.multiply(rest, out), a.multiply(step, other)]), lse


def exchanged(a: Any, one: tuple[Any, Any], two: tuple[Any, Any]) -> tuple[Any, Any]:
    """A mistake: the weight of the other part."""
    (out, lse), (other, more) = one, two
    step = column(a, sigmoid(a, minus(a, lse, more)), DIM)
    return minus(a, out, a.multiply(step, minus(a, out, other))), lse


def in_turn(a: Any, leaves: dict[str, Any], how: Callable[..., Any], cuts: list[tuple[int, int]]) -> tuple[Any, Any]:
    state = part(a, leaves, *cuts[0])
    for low, high in cuts[1:]:
        state = how(a, state, part(a, leaves, low, high))
    return state


def whole(a: Any, leaves: dict[str, Any]) -> tuple[Any, Any]:
    return part(a, leaves, 0, KEYS)


def leaves_of(a: Any) -> dict[str, Any]:
    return {name: a.leaf(name, shape, "float") for name, shape in SHAPES.items()}


ORDERS = {
    "two": [(0, 3), (3, 8)],
    "the last first": [(4, 8), (0, 4)],
    "with a hole": [(0, 2), (6, 8), (2, 4), (4, 6)],
    "one key at a time": [(2, 3), (0, 2), (3, 8)],
}


@pytest.mark.parametrize("how", [merge, weighted])
@pytest.mark.parametrize("order", ["two", "the last first", "with a hole"])
def test_parts_that_are_merged_are_the_whole(how: Callable[..., Any], order: str) -> None:
    universe = Universe()
    a = NormalForm(universe)
    leaves = leaves_of(a)
    wanted = whole(a, leaves)
    for found, value in zip(in_turn(a, leaves, how, ORDERS[order]), wanted, strict=True):
        assert equal(universe, found, value)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("how", [merge, weighted, exchanged])
def test_every_step_denotes_what_it_computes(how: Callable[..., Any], order: str) -> None:
    rng = np.random.default_rng(3)
    data = {name: rng.uniform(-1.5, 1.5, shape) for name, shape in SHAPES.items()}
    universe, numbers = Universe(), Numbers()
    forms = in_turn(NormalForm(universe), leaves_of(NormalForm(universe)), how, ORDERS[order])
    given = {name: numbers.literal(array) for name, array in data.items()}
    tables = {kernel.id: table for kernel, table in universe.tables}
    for form, value in zip(forms, in_turn(numbers, given, how, ORDERS[order]), strict=True):
        np.testing.assert_allclose(Denotation(data, closed, tables).value(form), value.array, rtol=1e-9)


@pytest.mark.parametrize("order", ["two", "the last first"])
def test_an_exchanged_weight_is_no_merge(order: str) -> None:
    universe = Universe(16)
    a = NormalForm(universe)
    leaves = leaves_of(a)
    assert not equal(universe, in_turn(a, leaves, exchanged, ORDERS[order])[0], whole(a, leaves)[0])


def test_the_sign_of_a_factor_is_not_guessed() -> None:
    """log(x y) is not log x + log y where both may be negative; with a square or an exponential it is."""
    a = NormalForm(Universe())
    x, y = (a.leaf(name, (4,), "float") for name in "xy")
    product = a.log(a.multiply(x, y))
    assert len(product.pieces[0][1]) == 1
    square = a.log(a.multiply(a.power(x, Fraction(2)), y))
    assert len(square.pieces[0][1]) == 2


def test_what_is_never_negative() -> None:
    a = NormalForm(Universe())
    x = a.leaf("x", (4,), "float")

    def kernel(value: Any) -> Any:
        return value.pieces[0][1][0][1][0]

    assert never_negative(kernel(a.sum(a.exp(x), [0])))
    assert never_negative(kernel(a.power(x, Fraction(2))))
    assert never_negative(kernel(a.power(a.add([a.exp(x), a.power(x, Fraction(2))]), Fraction(-1))))
    assert not never_negative(kernel(x))
    assert not never_negative(kernel(a.power(x, Fraction(3))))
    assert not never_negative(kernel(a.power(a.add([a.exp(x), a.scale(x, Fraction(2))]), Fraction(-1))))


@pytest.mark.parametrize("place", [1, 3, 8])
def test_probabilities_add_up_to_one_whoever_adds_them(place: int) -> None:
    """Over all keys at once or in two parts, by themselves and within a sum over rows that something else is part of."""
    a = NormalForm(Universe())
    e, v = (a.exp(a.leaf("s", SHAPES["s"], "float")), a.leaf("r", (ROWS,), "float"))
    p = a.multiply(e, column(a, a.power(a.sum(e, [1]), Fraction(-1)), KEYS))
    parts = [a.slice(p, 1, low, high) for low, high in ((0, place), (place, KEYS)) if low < high]
    assert equal(a.universe, a.add([a.sum(part, [1]) for part in parts]), a.full((ROWS,), Fraction(1), "float"))
    weighed = a.add([a.contract([(part, "rk"), (v, "r")], "") for part in parts])
    assert equal(a.universe, weighed, a.sum(v, [0]))
    unlike = a.add([a.contract([(part, "rk"), (part, "rk"), (v, "r")], "") for part in parts])
    assert not equal(a.universe, unlike, a.sum(v, [0]))


def with_sink(a: Any, leaves: dict[str, Any], less: Callable[[Any, Any, Any], Any] | None) -> tuple[Any, Any]:
    """A softmax with one more exponential below, all exponents taken less a number; and the logarithm of what is below."""
    s = leaves["s"]
    sink = a.slice(s, 1, 0, 1)
    s = a.slice(s, 1, 1, KEYS)
    shift = a.full((ROWS, 1), 0, "float") if less is None else less(a, s, sink)
    e = a.exp(minus(a, s, column(a, shift, KEYS - 1)))
    below = a.add([a.sum(e, [1]), a.reshape(a.exp(minus(a, sink, shift)), (ROWS,))])
    weights = a.multiply(e, column(a, a.power(below, Fraction(-1)), KEYS - 1))
    return weights, a.add([a.log(below), a.reshape(shift, (ROWS,))])


@pytest.mark.parametrize(
    "less",
    [
        lambda a, s, sink: sink,
        lambda a, s, sink: a.scale(sink, Fraction(1, 2)),
        lambda a, s, sink: a.slice(s, 1, 2, 3),
        lambda a, s, sink: a.reshape(a.max_over(s, [1]), (ROWS, 1)),
        lambda a, s, sink: a.maximum(a.reshape(a.max_over(s, [1]), (ROWS, 1)), sink),
    ],
)
def test_a_softmax_of_several_terms_is_the_same_whatever_its_exponents_are_taken_less(less: Any) -> None:
    data = {"s": np.random.default_rng(3).uniform(-1.5, 1.5, SHAPES["s"])}
    universe, numbers = Universe(), Numbers()
    a = NormalForm(universe)
    leaves = {"s": a.leaf("s", SHAPES["s"], "float")}
    plain, shifted = with_sink(a, leaves, None), with_sink(a, leaves, less)
    tables = {kernel.id: table for kernel, table in universe.tables}
    expected = with_sink(numbers, {"s": numbers.literal(data["s"])}, less)
    for one, two, value in zip(plain, shifted, expected, strict=True):
        assert equal(universe, one, two)
        np.testing.assert_allclose(Denotation(data, closed, tables).value(two), value.array, rtol=1e-9)
    half = with_sink(a, leaves, lambda a, s, sink: a.scale(sink, Fraction(1, 2)))[1]
    assert not equal(universe, half, a.add([plain[1], a.reshape(a.slice(leaves["s"], 1, 0, 1), (ROWS,))]))


def spread(a: Any, leaves: dict[str, Any], how: str) -> Any:
    """The weighted mean of squared distances from the weighted mean, in several ways."""
    x, m = leaves["x"], leaves["m"]
    per = a.power(a.sum(m, [0]), Fraction(-1))
    mean = a.multiply(a.sum(a.multiply(x, m), [0]), per)
    squares = a.multiply(a.sum(a.multiply(a.multiply(x, x), m), [0]), per)
    if how == "of squares":
        return minus(a, squares, a.power(mean, Fraction(2)))
    if how == "of squared sums":
        total, count = a.sum(a.multiply(x, m), [0]), a.sum(m, [0])
        return minus(
            a, squares, a.multiply(a.power(total, Fraction(2)), a.power(a.power(count, Fraction(2)), Fraction(-1)))
        )
    if how == "twice the mean":
        return minus(a, squares, a.multiply(a.multiply(mean, mean), a.full((), Fraction(2), "float")))
    distance = minus(a, x, a.expand(a.reshape(mean, (1,)), (5,)))
    squared = a.power(distance, Fraction(2)) if how == "power" else a.multiply(distance, distance)
    return a.multiply(a.sum(a.multiply(squared, m), [0]), per)


@pytest.mark.parametrize("how", ["power", "product", "of squared sums"])
def test_squared_distances_from_a_mean_are_written_out(how: str) -> None:
    rng = np.random.default_rng(5)
    data = {name: rng.uniform(0.5, 1.5, 5) for name in "xm"}
    universe, numbers = Universe(16), Numbers()
    a = NormalForm(universe)
    leaves = {name: a.leaf(name, (5,), "float") for name in "xm"}
    found = spread(a, leaves, how)
    assert equal(universe, found, spread(a, leaves, "of squares"))
    assert not equal(universe, found, spread(a, leaves, "twice the mean"))
    tables = {kernel.id: table for kernel, table in universe.tables}
    expected = spread(numbers, {name: numbers.literal(array) for name, array in data.items()}, how)
    np.testing.assert_allclose(Denotation(data, closed, tables).value(found), expected.array, rtol=1e-9)
