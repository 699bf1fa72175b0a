"""Element by element: what is cut apart differently is equal, and nothing else is."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from graphguard.relations.functions.piecewise import equal
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.prove.points import differ_on_numbers, equal_at_points
from graphguard.relations.terms.kernels import Universe
from graphguard.relations.terms.values import NormalValue


@pytest.fixture
def a() -> NormalForm:
    return NormalForm(Universe(expand=16))


def rows(a: NormalForm, x: NormalValue, w: NormalValue, chosen: list[int]) -> NormalValue:
    """Chosen rows of a product, one after the other."""
    return a.concat([a.contract([(a.slice(x, 0, i, i + 1), "ij"), (w, "jk")], "ik") for i in chosen], 0)


def test_rows_put_together_are_the_rows_of_the_whole(a: NormalForm) -> None:
    x, w = a.leaf("x", (4, 3), "float"), a.leaf("w", (3, 2), "float")
    whole = a.apply("gelu", (), [rows(a, x, w, [0, 2, 1, 3])], "float")
    a.universe.specifying = False
    part = a.apply("gelu", (), [a.contract([(x, "ij"), (w, "jk")], "ik")], "float")
    order = a.concat([a.slice(part, 0, i, i + 1) for i in (0, 2, 1, 3)], 0)
    assert equal_at_points(a.universe, whole, order)
    assert not equal_at_points(a.universe, whole, part)


def test_sums_over_kept_positions_in_any_order(a: NormalForm) -> None:
    """Seven of eight squares, summed by rows in one program and by columns in the other."""
    x = a.leaf("x", (2, 4), "float")
    square = a.multiply(x, x)
    kept = a.literal(np.array([[1.0, 1, 0, 1], [1, 1, 1, 1]]))
    by_rows = a.sum(a.multiply(square, kept), [0, 1])
    columns = [a.multiply(a.slice(square, 1, i, i + 1), a.slice(kept, 1, i, i + 1)) for i in range(4)]
    by_columns = a.add([a.sum(column, [0, 1]) for column in columns])
    all_of_them = a.sum(square, [0, 1])
    assert equal_at_points(a.universe, by_rows, by_columns)
    assert not equal_at_points(a.universe, by_rows, all_of_them)


def test_a_recurrence_in_two_parts(a: NormalForm) -> None:
    x, decay = a.leaf("x", (4,), "float"), a.leaf("a", (4,), "float")

    def scanned(first: int, last: int, state: NormalValue) -> NormalValue:
        for i in range(first, last):
            state = a.add([a.multiply(a.slice(decay, 0, i, i + 1), state), a.slice(x, 0, i, i + 1)])
        return state

    nothing = a.full((1,), Fraction(0), "float")
    whole = scanned(0, 4, nothing)
    carried = a.multiply(a.slice(decay, 0, 2, 3), a.slice(decay, 0, 3, 4))
    late = a.add([scanned(2, 4, nothing), a.multiply(carried, scanned(0, 2, nothing))])
    assert equal(a.universe, whole, late) or equal_at_points(a.universe, whole, late)
    assert not equal_at_points(a.universe, whole, scanned(2, 4, nothing))


def test_a_difference_that_is_small_is_no_equality(a: NormalForm) -> None:
    """Numbers are only asked first: what they take for rounding must still vanish."""
    x = a.leaf("x", (3,), "float")
    near = a.scale(x, Fraction(10**12 + 1, 10**12))
    assert not equal_at_points(a.universe, x, near)


def test_large_values_are_left_alone(a: NormalForm) -> None:
    x = a.leaf("x", (1100,), "float")
    assert not equal_at_points(a.universe, x, x)


@pytest.mark.parametrize(("low", "high"), [(250, 270), (-9, -2), (None, 3), (None, None), (3, None)])
def test_integers_of_any_range_are_drawn(a: NormalForm, low: int | None, high: int | None) -> None:
    i = a.leaf("i", (4,), "int", low, high)
    x = a.apply("gelu", (), [a.number(i, "float")], "float")
    assert equal_at_points(a.universe, a.flip(a.flip(x, 0), 0), x)
    assert not equal_at_points(a.universe, x, a.scale(x, Fraction(2)))


def test_numbers_tell_large_values_apart_whose_exponentials_are_far_off(a: NormalForm) -> None:
    """A softmax over scores of five products, as attention's: written down at once, the sums behind it have 64^5 summands, and numbers near one overflow."""
    factors = [a.leaf(name, (64, 64), "float") for name in "abcde"]

    def attention(*order: int) -> NormalValue:
        score = factors[order[0]]
        for place in order[1:]:
            score = a.contract([(score, "ij"), (factors[place], "jk")], "ik")
        weight = a.apply("exp", (), [score], "float")
        return a.contract([(weight, "ij"), (a.power(a.sum(weight, [1]), Fraction(-1)), "i")], "ij")

    right, other = attention(0, 1, 2, 3, 4), attention(0, 1, 2, 4, 3)
    assert differ_on_numbers(a.universe, right, other)
    assert not differ_on_numbers(a.universe, right, a.scale(a.scale(right, Fraction(3)), Fraction(1, 3)))


def test_tables_that_are_written_down_after_a_question_are_read_as_they_are(a: NormalForm) -> None:
    """What is drawn is kept for the next question: a table that a later value brings along is no unknown."""
    x = a.leaf("x", (12, 12), "float")
    assert not differ_on_numbers(a.universe, x, x)
    numbers = np.random.default_rng(0).permutation(144).reshape(12, 12)
    product = a.multiply(x, a.literal(numbers / 7))
    assert a.universe.tables
    rows = [
        [a.scale(a.slice(a.slice(x, 0, i, i + 1), 1, j, j + 1), Fraction(float(numbers[i, j] / 7))) for j in range(12)]
        for i in range(12)
    ]
    assert not differ_on_numbers(a.universe, product, a.concat([a.concat(row, 1) for row in rows], 0))
    assert differ_on_numbers(a.universe, product, a.concat([a.concat(row[::-1], 1) for row in rows], 0))


@pytest.mark.parametrize("power", [-1, -2])
def test_parts_over_one_divisor(a: NormalForm, power: int) -> None:
    """``(x d + y d)/(d s) = (x + y)/s`` for sums d and s, as a softmax over strided keys is merged."""
    x, y, z = (a.leaf(name, (3,), "float") for name in "xyz")
    part, whole = a.add([x, y]), a.add([x, y, z])
    left = a.multiply(part, a.power(whole, Fraction(power)))
    both = a.multiply(a.power(part, Fraction(-1)), a.power(whole, Fraction(power)))
    right = a.add([a.multiply(a.multiply(each, part), both) for each in (x, y)])
    wrong = a.add([a.multiply(a.multiply(each, part), both) for each in (x, z)])
    assert equal_at_points(a.universe, left, right)
    assert not equal_at_points(a.universe, left, wrong)
    assert not equal_at_points(a.universe, left, part)
