"""What only looks at the order of a line, and what is computed of selected elements."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from graphguard.relations.functions.piecewise import equal
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.values import NormalValue
from graphguard.rules.basis.arithmetic import minus, negative, plus, square, times
from graphguard.rules.lines.reductions import argmax
from graphguard.rules.lines.selection import sort, topk
from graphguard.rules.lines.softmax import log_softmax_over, softmax_over
from graphguard.rules.positions.scatter import gather

SHAPE = (4, 10)
Change = Callable[[NormalForm, NormalValue], NormalValue]


@pytest.fixture
def a() -> NormalForm:
    return NormalForm()


@pytest.fixture
def x(a: NormalForm) -> NormalValue:
    return a.leaf("x", SHAPE, "float")


def rows(a: NormalForm, name: str = "t") -> NormalValue:
    """One number for every line."""
    return a.expand(a.reshape(a.leaf(name, (4,), "float"), (4, 1)), SHAPE)


KEPT: dict[str, Change] = {
    "softmax": lambda a, x: softmax_over(a, x, 1),
    "log_softmax": lambda a, x: log_softmax_over(a, x, 1),
    "sigmoid": lambda a, x: a.apply("sigmoid", (), [x], "float"),
    "temperature": lambda a, x: softmax_over(a, a.scale(x, Fraction(5, 3)), 1),
    "shift of a line": lambda a, x: a.add([x, rows(a)]),
    "positive factor of a line": lambda a, x: times(a, x, a.exp(rows(a))),
    "against the order of its opposite": lambda a, x: negative(a, a.exp(negative(a, x))),
}
CHANGED: dict[str, Change] = {
    "opposite": negative,
    "softmax of the opposite": lambda a, x: softmax_over(a, negative(a, x), 1),
    "square": square,
    "factor of a line": lambda a, x: times(a, x, rows(a)),
    "shift of the elements": lambda a, x: a.add([x, a.leaf("b", SHAPE, "float")]),
    "softmax over the lines": lambda a, x: softmax_over(a, x, 0),
    "maximum with zero": lambda a, x: a.maximum(x, a.full(SHAPE, 0, "float")),
    "rounded": lambda a, x: a.apply("cast", ("bfloat16",), [x], "float"),
}
PLACES: dict[str, Change] = {
    "topk": lambda a, x: topk(a, x, 3)[1],
    "sort": lambda a, x: sort(a, x, 1, True)[1],
    "argmax": lambda a, x: argmax(a, x, 1),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("change", KEPT)
def test_an_increasing_function_of_a_line_keeps_its_places(
    a: NormalForm, x: NormalValue, place: str, change: str
) -> None:
    assert equal(a.universe, PLACES[place](a, KEPT[change](a, x)), PLACES[place](a, x))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("change", CHANGED)
def test_another_function_does_not(a: NormalForm, x: NormalValue, place: str, change: str) -> None:
    assert not equal(a.universe, PLACES[place](a, CHANGED[change](a, x)), PLACES[place](a, x))


def test_the_largest_are_where_their_places_say(a: NormalForm, x: NormalValue) -> None:
    values, places = topk(a, x, 3)
    assert equal(a.universe, values, gather(a, x, 1, places))
    assert not equal(a.universe, values, gather(a, x, 1, topk(a, x, 3, sorted=False)[1]))


def test_weights_of_experts_before_and_after_the_choice(a: NormalForm, x: NormalValue) -> None:
    chosen = topk(a, softmax_over(a, x, 1), 3)[0]
    whole = a.expand(a.reshape(a.sum(chosen, (1,)), (4, 1)), (4, 3))
    renormalised = times(a, chosen, a.power(whole, Fraction(-1)))
    assert equal(a.universe, renormalised, softmax_over(a, topk(a, x, 3)[0], 1))
    assert not equal(a.universe, chosen, softmax_over(a, topk(a, x, 3)[0], 1))


FUNCTIONS: dict[str, Change] = {
    "exp": lambda a, x: a.exp(x),
    "gelu": lambda a, x: times(a, x, a.apply("erf", (), [x], "float")),
    "relu": lambda a, x: a.maximum(x, a.full(x.shape, 0, "float")),
    "square": square,
    "inverse": lambda a, x: a.power(x, Fraction(-1)),
    "positive": lambda a, x: a.compare("lt", a.full(x.shape, 0, "float"), x),
    "rounded": lambda a, x: a.apply("cast", ("bfloat16",), [x], "float"),
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_of_rows_that_are_looked_up(a: NormalForm, x: NormalValue, function: str) -> None:
    act = FUNCTIONS[function]
    index = a.leaf("i", (5,), "int", 0, 4)
    assert equal(a.universe, act(a, a.lookup(x, index)), a.lookup(act(a, x), index))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_of_what_another_index_selects(a: NormalForm, x: NormalValue, function: str) -> None:
    act = FUNCTIONS[function]
    index, other = a.leaf("i", (5,), "int", 0, 4), a.leaf("j", (5,), "int", 0, 4)
    assert not equal(a.universe, act(a, a.lookup(x, index)), a.lookup(act(a, x), other))


def test_functions_of_part_of_a_table_keep_their_zeros(a: NormalForm, x: NormalValue) -> None:
    """exp of a row that no rank of a vocabulary holds is 1, not 0."""
    index = a.leaf("i", (5,), "int", 0, 4)
    hot = a.one_hot(index, 4)
    half = a.contract([(a.slice(hot, 1, 0, 2), "iv"), (a.slice(x, 0, 0, 2), "vd")], "id")
    of_half = a.contract([(a.slice(hot, 1, 0, 2), "iv"), (a.exp(a.slice(x, 0, 0, 2)), "vd")], "id")
    assert not equal(a.universe, a.exp(half), of_half)


def test_functions_of_a_product_of_selected_rows(a: NormalForm, x: NormalValue) -> None:
    index, w = a.leaf("i", (5,), "int", 0, 4), a.leaf("w", (10, 3), "float")
    first = a.exp(a.contract([(a.lookup(x, index), "id"), (w, "dh")], "ih"))
    assert equal(a.universe, first, a.lookup(a.exp(a.contract([(x, "vd"), (w, "dh")], "vh")), index))


SHIFTED: dict[str, Change] = {
    "exp": lambda a, x: times(a, a.exp(minus(a, x, rows(a, "s"))), a.exp(rows(a, "s"))),
    "exp of twice": lambda a, x: times(a, a.exp(minus(a, a.scale(x, Fraction(2)), rows(a, "s"))), a.exp(rows(a, "s"))),
    "logarithm of a sum": lambda a, x: plus(
        a, a.log(a.sum(a.exp(minus(a, x, rows(a, "s"))), [1])), a.leaf("s", (4,), "float")
    ),
    "logarithm of a sum, by the maximum": lambda a, x: plus(
        a, a.log(a.sum(a.exp(minus(a, x, top(a, x))), [1])), largest(a, x)
    ),
}
PLAIN: dict[str, Change] = {
    "exp": lambda a, x: a.exp(x),
    "exp of twice": lambda a, x: a.exp(a.scale(x, Fraction(2))),
    "logarithm of a sum": lambda a, x: a.log(a.sum(a.exp(x), [1])),
    "logarithm of a sum, by the maximum": lambda a, x: a.log(a.sum(a.exp(x), [1])),
}


def largest(a: NormalForm, x: NormalValue) -> NormalValue:
    return a.max_over(x, [1])


def test_the_largest_of_exponentials_and_of_multiples(a: NormalForm, x: NormalValue) -> None:
    t = a.leaf("t", (4,), "float")
    factor = a.exp(t)
    assert equal(a.universe, largest(a, a.exp(x)), a.exp(largest(a, x)))
    assert equal(a.universe, largest(a, times(a, x, a.exp(rows(a)))), times(a, largest(a, x), factor))
    assert equal(a.universe, largest(a, softmax_over(a, x, 1)), a.exp(largest(a, log_softmax_over(a, x, 1))))
    assert equal(a.universe, a.maximum(a.exp(x), a.exp(rows(a))), a.exp(a.maximum(x, rows(a))))
    opposite = negative(a, x)
    assert equal(a.universe, largest(a, times(a, opposite, a.exp(rows(a)))), times(a, largest(a, opposite), factor))


def test_the_largest_of_what_is_no_multiple_by_a_positive_number(a: NormalForm, x: NormalValue) -> None:
    t = a.leaf("t", (4,), "float")
    assert not equal(a.universe, largest(a, times(a, x, rows(a))), times(a, largest(a, x), t))
    assert not equal(a.universe, largest(a, negative(a, a.exp(x))), negative(a, a.exp(largest(a, x))))
    assert not equal(a.universe, largest(a, a.power(x, Fraction(2))), a.power(largest(a, x), Fraction(2)))
    moving = a.exp(a.leaf("s", SHAPE, "float"))
    assert not equal(a.universe, largest(a, times(a, x, moving)), times(a, largest(a, x), largest(a, moving)))


@pytest.mark.parametrize("relation", ["lt", "le", "eq"])
def test_what_is_compared_may_be_divided_by_a_positive_number(a: NormalForm, x: NormalValue, relation: str) -> None:
    y, factor = a.leaf("y", SHAPE, "float"), a.exp(rows(a))
    scaled = a.compare(relation, times(a, x, factor), times(a, y, factor))
    assert equal(a.universe, scaled, a.compare(relation, x, y))
    assert equal(
        a.universe,
        a.compare(relation, times(a, x, a.power(factor, Fraction(-1))), y),
        a.compare(relation, x, times(a, y, factor)),
    )
    unknown = a.compare(relation, times(a, x, rows(a)), times(a, y, rows(a)))
    assert not equal(a.universe, unknown, a.compare(relation, x, y))
    if relation != "eq":
        turned = a.compare(relation, negative(a, times(a, x, factor)), negative(a, times(a, y, factor)))
        assert not equal(a.universe, turned, a.compare(relation, x, y))
    assert not equal(a.universe, a.compare(relation, times(a, x, factor), y), a.compare(relation, x, y))


def top(a: NormalForm, x: NormalValue) -> NormalValue:
    return a.expand(a.reshape(largest(a, x), (x.shape[0], 1)), x.shape)


@pytest.mark.parametrize("function", SHIFTED)
def test_shifts_of_looked_up_rows_cancel(a: NormalForm, function: str) -> None:
    """A cross entropy by its largest logit, of what an embedding looks up."""
    looked_up = a.lookup(a.leaf("x", (7, 10), "float"), a.leaf("i", (4,), "int", 0, 7))
    assert equal(a.universe, SHIFTED[function](a, looked_up), PLAIN[function](a, looked_up))
    other = a.lookup(a.leaf("x", (7, 10), "float"), a.leaf("j", (4,), "int", 0, 7))
    assert not equal(a.universe, SHIFTED[function](a, looked_up), PLAIN[function](a, other))
