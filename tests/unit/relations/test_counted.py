"""Means over what a mask counts, times the count, are sums."""

from fractions import Fraction

import pytest

from graphguard.relations.functions.piecewise import equal
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.kernels import Universe
from graphguard.relations.terms.values import NormalValue

ROWS, COLUMNS = 3, 5


def mean(
    a: NormalForm, mask: NormalValue, x: NormalValue, counted: NormalValue, dims: tuple[int, ...], least: int = 1
) -> NormalValue:
    """``(mask * x).sum(dims) / counted.sum(dims).clamp(min=least)``."""
    count = a.sum(counted, dims)
    bound = a.full(count.shape, least, "int")
    return a.multiply(a.sum(a.multiply(mask, x), dims), a.power(a.maximum(count, bound), -1))


def numbers(low: int = 0, high: int = 2) -> tuple[NormalForm, NormalValue, NormalValue]:
    a = NormalForm(Universe())
    return a, a.leaf("m", (ROWS, COLUMNS), "int", low, high), a.leaf("x", (ROWS, COLUMNS), "float")


@pytest.mark.parametrize(("low", "high", "known"), [(0, 2, True), (0, 7, True), (-1, 2, False)])
@pytest.mark.parametrize("dims", [(0, 1), (1,)])
def test_what_is_divided_by_the_count_and_weighed_by_it_is_the_sum(
    low: int, high: int, known: bool, dims: tuple[int, ...]
) -> None:
    a, mask, x = numbers(low, high)
    weighed = a.multiply(mean(a, mask, x, mask, dims), a.sum(mask, dims))
    assert equal(a.universe, weighed, a.sum(a.multiply(mask, x), dims)) is known


def test_another_count_does_not_cancel() -> None:
    a, mask, x = numbers()
    other = a.leaf("o", (ROWS, COLUMNS), "int", 0, 2)
    whole = a.sum(a.multiply(mask, x), (0, 1))
    assert not equal(a.universe, a.multiply(mean(a, mask, x, other, (0, 1)), a.sum(other, (0, 1))), whole)
    assert not equal(a.universe, a.multiply(mean(a, mask, x, mask, (0, 1)), a.sum(other, (0, 1))), whole)


def test_a_count_of_a_part_does_not_cancel() -> None:
    a, mask, x = numbers()
    part = a.slice(mask, 1, 0, 3)
    weighed = a.multiply(mean(a, mask, x, part, (0, 1)), a.sum(part, (0, 1)))
    assert not equal(a.universe, weighed, a.sum(a.multiply(mask, x), (0, 1)))


def test_what_is_divided_by_two_at_least_does_not_cancel() -> None:
    a, mask, x = numbers()
    weighed = a.multiply(mean(a, mask, x, mask, (0, 1), least=2), a.sum(mask, (0, 1)))
    assert not equal(a.universe, weighed, a.sum(a.multiply(mask, x), (0, 1)))


def test_what_is_not_masked_does_not_vanish_with_the_count() -> None:
    a, mask, x = numbers()
    ones = a.full((ROWS, COLUMNS), 1, "int")
    weighed = a.multiply(mean(a, ones, x, mask, (0, 1)), a.sum(mask, (0, 1)))
    assert not equal(a.universe, weighed, a.sum(x, (0, 1)))


def test_the_count_of_other_rows_does_not_cancel() -> None:
    a, mask, x = numbers()
    rows = mean(a, mask, x, mask, (1,))
    weighed = a.multiply(rows, a.flip(a.sum(mask, (1,)), 0))
    assert not equal(a.universe, weighed, a.sum(a.multiply(mask, x), (1,)))


def test_parts_of_numbers_do_not_cancel() -> None:
    a, mask, x = numbers()
    halves = a.scale(mask, Fraction(1, 2))
    weighed = a.multiply(mean(a, halves, x, halves, (0, 1)), a.sum(halves, (0, 1)))
    assert not equal(a.universe, weighed, a.sum(a.multiply(halves, x), (0, 1)))
    weights = a.leaf("w", (ROWS, COLUMNS), "float", 0, 2)
    weighed = a.multiply(mean(a, weights, x, weights, (0, 1)), a.sum(weights, (0, 1)))
    assert not equal(a.universe, weighed, a.sum(a.multiply(weights, x), (0, 1)))
