"""Causal softmax with a running maximum, over tensors that lie in pieces: what its normal form denotes, element by element."""

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
from graphguard.rules.basis.arithmetic import compared

SHAPE = (1, 4, 3)


def softmax(a: Any, x: Any, dim: int) -> Any:
    """Masked above the diagonal of the last two dims, shifted by the maximum; rows of x do not fit rows of the result."""
    x = a.reshape(x, SHAPE)
    _, rows, columns = SHAPE
    row = a.expand(a.reshape(a.iota(rows), (rows, 1)), (rows, columns))
    column = a.expand(a.reshape(a.iota(columns), (1, columns)), (rows, columns))
    x = a.where(a.expand(a.compare("le", column, row), SHAPE), x, a.full(SHAPE, float("-inf"), "float"))
    keep = tuple(1 if d == dim else size for d, size in enumerate(SHAPE))
    largest = a.expand(a.reshape(a.max_over(x, [dim]), keep), SHAPE)
    exponentials = a.exp(a.add([x, a.scale(largest, Fraction(-1))]))
    total = a.expand(a.reshape(a.sum(exponentials, [dim]), keep), SHAPE)
    return a.multiply(exponentials, a.power(total, Fraction(-1)))


@pytest.mark.parametrize("dim", [1, 2])
def test_masks_that_hold_nowhere_in_a_piece(dim: int) -> None:
    """A mask that is false at a piece's only place makes no infinity there (the exponential was 0 before)."""
    data = np.random.default_rng(0).uniform(0.6, 1.4, (3, 4))
    universe = Universe()
    form = softmax(NormalForm(universe), NormalForm(universe).leaf("x", (3, 4), "float"), dim)
    tables = {kernel.id: table for kernel, table in universe.tables}
    numbers = Numbers()
    expected = softmax(numbers, numbers.literal(data), dim)
    np.testing.assert_allclose(Denotation({"x": data}, closed, tables).value(form), expected.array)


@pytest.mark.parametrize("relation", ["eq", "lt", "le"])
@pytest.mark.parametrize("swapped", [False, True])
def test_probabilities_are_zero_behind_a_mask_alone(relation: str, swapped: bool) -> None:
    def act(a: Any, x: Any) -> Any:
        sides = softmax(a, x, 2), a.full(SHAPE, Fraction(0), "float")
        return a.compare(relation, *(sides[::-1] if swapped else sides))

    data = np.random.default_rng(0).uniform(0.6, 1.4, (3, 4))
    universe, numbers = Universe(), Numbers()
    form = act(NormalForm(universe), NormalForm(universe).leaf("x", (3, 4), "float"))
    expected = act(numbers, numbers.literal(data)).array
    tables = {kernel.id: table for kernel, table in universe.tables}
    np.testing.assert_array_equal(Denotation({"x": data}, closed, tables).value(form), expected)


@pytest.mark.parametrize("same", [True, False])
def test_a_condition_of_many_truths_is_one_under_an_infinity(same: bool) -> None:
    """Six whole numbers, equal in pairs as truths say: exp is 0 where a pair is not."""

    def act(a: Any, x: Any) -> Any:
        bits = [compared(a, "lt", a.slice(x, 0, at, at + 1), 1.0) for at in range(6)]
        alike = [compared(a, "eq", bits[at], bits[at + 3 if same else 5 - at]) for at in range(3)]
        condition = a.logical_and(a.logical_and(alike[0], alike[1]), alike[2])
        return a.exp(a.where(condition, a.slice(x, 0, 0, 1), a.full((1,), float("-inf"), "float")))

    for seed in range(12):
        data = np.random.default_rng(seed).choice([0.5, 1.5], 6)
        universe, numbers = Universe(), Numbers()
        form = act(NormalForm(universe), NormalForm(universe).leaf("x", (6,), "float"))
        tables = {kernel.id: table for kernel, table in universe.tables}
        expected = act(numbers, numbers.literal(data)).array
        np.testing.assert_allclose(Denotation({"x": data}, closed, tables).value(form), expected)


def test_an_exponential_is_more_than_zero() -> None:
    a = NormalForm(Universe())
    e = a.exp(a.leaf("x", (3, 4), "float"))
    total = a.sum(a.multiply(e, e), [1])
    zero = a.full((3,), Fraction(0), "float")
    false = a.full((3,), Fraction(0), "bool")
    assert equal(a.universe, a.compare("eq", total, zero), false)
    assert equal(a.universe, a.compare("le", total, zero), false)
    assert equal(a.universe, a.compare("lt", zero, total), a.full((3,), Fraction(1), "bool"))
