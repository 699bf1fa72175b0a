"""Weights of summands: what they say of sums put together in unequal shares, and what they leave open."""

from __future__ import annotations

from fractions import Fraction

import pytest

from graphguard.relations.explain.weights import Weight, weights
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.kernels import Universe
from graphguard.relations.terms.values import NormalValue

THREE_HALVES, THREE_QUARTERS = Fraction(3, 2), Fraction(3, 4)


@pytest.fixture
def forms() -> NormalForm:
    return NormalForm(Universe())


def rows(forms: NormalForm, x: NormalValue, low: int, high: int) -> NormalValue:
    return forms.sum(forms.slice(x, 0, low, high), (0,))


def added(forms: NormalForm, *terms: tuple[Fraction | int, NormalValue]) -> NormalValue:
    return forms.add([forms.scale(value, factor) for factor, value in terms])


def test_summands_in_unequal_shares(forms: NormalForm) -> None:
    x = forms.leaf("x", (6, 3), "float")
    found = added(forms, (THREE_HALVES, rows(forms, x, 0, 2)), (THREE_QUARTERS, rows(forms, x, 2, 6)))
    expected = (Weight(THREE_HALVES, 0, 2), Weight(THREE_QUARTERS, 2, 6))
    assert weights(forms.universe, found, rows(forms, x, 0, 6)) == expected


def test_summands_one_by_one(forms: NormalForm) -> None:
    x = forms.leaf("x", (3, 4), "float")
    found = added(forms, *((2**i, rows(forms, x, i, i + 1)) for i in range(3)))
    expected = (Weight(1, 0, 1), Weight(2, 1, 2), Weight(4, 2, 3))
    assert weights(forms.universe, found, rows(forms, x, 0, 3)) == expected


def test_one_factor(forms: NormalForm) -> None:
    x = forms.leaf("x", (3, 4), "float")
    whole = rows(forms, x, 0, 3)
    assert weights(forms.universe, added(forms, (5, whole)), whole) == (Weight(5),)


@pytest.mark.parametrize("parts", [[(0, 2)], [(0, 1), (2, 3)], [(1, 2)], [(0, 2), (1, 3)], [(0, 3), (0, 3)]])
def test_a_summand_that_is_left_out_counts_nothing_and_one_that_is_there_twice_counts_twice(
    forms: NormalForm, parts: list[tuple[int, int]]
) -> None:
    x = forms.leaf("x", (3, 4), "float")
    found = added(forms, *((1, rows(forms, x, low, high)) for low, high in parts))
    told = weights(forms.universe, found, rows(forms, x, 0, 3))
    counts = [sum(low <= i < high for low, high in parts) for i in range(3)]
    assert told is not None
    assert [next(w.factor for w in told if not w.high or w.low <= i < w.high) for i in range(3)] == counts


def test_a_term_that_is_left_out_counts_nothing(forms: NormalForm) -> None:
    x, y = forms.leaf("x", (3, 4), "float"), forms.leaf("y", (3, 4), "float")
    whole = added(forms, (2, rows(forms, x, 0, 3)), (1, rows(forms, y, 0, 3)))
    assert weights(forms.universe, rows(forms, y, 0, 3), whole) in [(Weight(0), Weight(1)), (Weight(1), Weight(0))]


def test_another_tensor_has_no_weights(forms: NormalForm) -> None:
    x, y = forms.leaf("x", (3, 4), "float"), forms.leaf("y", (3, 4), "float")
    found = added(forms, (1, rows(forms, x, 0, 3)), (1, rows(forms, y, 0, 1)))
    assert weights(forms.universe, found, rows(forms, x, 0, 3)) is None


def test_the_numbers_that_a_comparison_admits_are_no_summands(forms: NormalForm) -> None:
    x, index = forms.leaf("x", (2,), "float"), forms.leaf("index", (2,), "int")
    nothing = forms.full((2,), 0, "float")
    masked = [forms.where(forms.compare("lt", index, forms.full((2,), bound, "int")), x, nothing) for bound in (3, 5)]
    assert weights(forms.universe, *masked) is None
