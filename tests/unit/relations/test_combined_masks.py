"""Softmax under several masks at once: every spelling has one normal form, whole and cut into rows, and it denotes the right numbers."""

import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from benchmarks.trust.fuzz import closed
from graphguard.relations.functions.piecewise import equal
from graphguard.relations.numbers import Number, Numbers
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.denotation import Denotation
from graphguard.relations.terms.kernels import Universe

TOKENS, WINDOW, PREFIX = 8, 3, 2
Hidden = Callable[[Any, Any, Any], Any]
Spelling = Callable[[Any, Any, Hidden, Any, Any], Any]


def future(a: Any, row: Any, column: Any) -> Any:
    return a.compare("lt", row, column)


def far(a: Any, row: Any, column: Any) -> Any:
    return a.compare("le", a.add([column, a.full(column.shape, WINDOW, "int")]), row)


def either(a: Any, row: Any, column: Any) -> Any:
    """A sliding window: the future and what is too far back."""
    return a.logical_or(future(a, row, column), far(a, row, column))


def outside(a: Any, row: Any, column: Any) -> Any:
    """The same window, as the opposite of what may be seen."""
    return a.logical_not(a.logical_and(a.logical_not(far(a, row, column)), a.logical_not(future(a, row, column))))


def after_prefix(a: Any, row: Any, column: Any) -> Any:
    """The future, but for a prefix that all may see."""
    return a.logical_and(future(a, row, column), a.compare("le", a.full(column.shape, PREFIX, "int"), column))


def places(a: Any, shape: tuple[int, ...], start: int) -> tuple[Any, Any]:
    rows, columns = shape
    row = a.add([a.iota(rows), a.full((rows,), start, "int")])
    return a.expand(a.reshape(row, (rows, 1)), shape), a.expand(a.reshape(a.iota(columns), (1, columns)), shape)


def infinite(a: Any, shape: tuple[int, ...]) -> Any:
    return a.full(shape, float("-inf"), "float")


def filled(a: Any, x: Any, hidden: Hidden, row: Any, column: Any) -> Any:
    return a.where(hidden(a, row, column), infinite(a, x.shape), x)


def added(a: Any, x: Any, hidden: Hidden, row: Any, column: Any) -> Any:
    zero = a.full(x.shape, 0, "float")
    return a.add([x, a.where(hidden(a, row, column), infinite(a, x.shape), zero)])


def filled_twice(a: Any, x: Any, hidden: Hidden, row: Any, column: Any) -> Any:
    return filled(a, filled(a, x, future, row, column), far, row, column)


def added_twice(a: Any, x: Any, hidden: Hidden, row: Any, column: Any) -> Any:
    return added(a, added(a, x, far, row, column), future, row, column)


def softmax(a: Any, x: Any, hidden: Hidden, spelling: Spelling = filled, start: int = 0) -> Any:
    x = spelling(a, x, hidden, *places(a, x.shape, start))
    exponentials = a.exp(x)
    total = a.expand(a.reshape(a.sum(exponentials, [1]), (x.shape[0], 1)), x.shape)
    return a.multiply(exponentials, a.power(total, -1))


@pytest.fixture
def a() -> NormalForm:
    return NormalForm(Universe())


@pytest.fixture
def x(a: NormalForm) -> Any:
    return a.leaf("x", (TOKENS, TOKENS), "float")


@pytest.mark.parametrize("hidden", [either, outside, after_prefix])
@pytest.mark.parametrize("spelling", [filled, added])
def test_it_denotes_the_numbers(a: NormalForm, x: Any, hidden: Hidden, spelling: Spelling) -> None:
    data = np.random.default_rng(0).uniform(-1, 1, (TOKENS, TOKENS))
    tables = {kernel.id: table for kernel, table in a.universe.tables}
    numbers = Numbers()
    expected: Number = softmax(numbers, numbers.literal(data), hidden, spelling)
    found = Denotation({"x": data}, closed, tables).value(softmax(a, x, hidden, spelling))
    np.testing.assert_allclose(found, expected.array)


@pytest.mark.parametrize(
    ("hidden", "spelling"),
    [(either, added), (outside, filled), (outside, added), (either, filled_twice), (either, added_twice)],
)
def test_spellings_of_a_window(a: NormalForm, x: Any, hidden: Hidden, spelling: Spelling) -> None:
    assert equal(a.universe, softmax(a, x, either), softmax(a, x, hidden, spelling))


def test_spellings_of_a_prefix(a: NormalForm, x: Any) -> None:
    assert equal(a.universe, softmax(a, x, after_prefix), softmax(a, x, after_prefix, added))


@pytest.mark.parametrize(
    ("hidden", "ranks"),
    [*itertools.product([future, either, after_prefix], [2, 4]), (future, TOKENS), (either, TOKENS)],
)
def test_rows_of_a_shard(a: NormalForm, x: Any, hidden: Hidden, ranks: int) -> None:
    """A mask that is 1 throughout a shard's rows leaves no trace there."""
    whole, count = softmax(a, x, hidden), TOKENS // ranks
    a.universe.specifying = False
    for start in range(0, TOKENS, count):
        shard = a.slice(x, 0, start, start + count)
        assert equal(a.universe, a.slice(whole, 0, start, start + count), softmax(a, shard, hidden, start=start))
    first = a.slice(x, 0, 0, count)
    assert not equal(a.universe, a.slice(whole, 0, 0, count), softmax(a, first, hidden, start=3))


def test_sums_over_the_rows_of_shards(a: NormalForm, x: Any) -> None:
    """The gradient of the keys is a sum over queries, of which every rank has some."""
    whole, count = a.sum(softmax(a, x, either), [0]), 2
    a.universe.specifying = False
    parts = [
        a.sum(softmax(a, a.slice(x, 0, start, start + count), either, start=start), [0])
        for start in range(0, TOKENS, count)
    ]
    assert equal(a.universe, whole, a.add(parts))
    assert not equal(a.universe, whole, a.add(parts[1:]))


def test_a_window_that_is_one_wider_is_another(a: NormalForm, x: Any) -> None:
    def wider(a: Any, row: Any, column: Any) -> Any:
        return a.logical_or(
            future(a, row, column),
            a.compare("le", a.add([column, a.full(column.shape, WINDOW + 1, "int")]), row),
        )

    assert not equal(a.universe, softmax(a, x, either), softmax(a, x, wider))


def test_equality_of_two_unknown_indices_has_one_form_on_shards(a: NormalForm) -> None:
    """Documents in a packed sequence: ``id[i] == id[j]`` is read from another place by every rank."""
    ids = a.leaf("ids", (TOKENS,), "int", 0, 3)

    def same(first: int, last: int) -> Any:
        shape = (last - first, TOKENS)
        row = a.expand(a.reshape(a.slice(ids, 0, first, last), (last - first, 1)), shape)
        return a.compare("eq", row, a.expand(a.reshape(ids, (1, TOKENS)), shape))

    whole = same(0, TOKENS)
    a.universe.specifying = False
    assert equal(a.universe, a.slice(whole, 0, 4, 8), same(4, 8))


def test_a_mask_that_leaves_nothing_of_a_piece_is_seen_where_another_value_cuts_it() -> None:
    """The last key of causal attention whose last query has no loss: what a sum is closed over there has no term of it."""
    a = NormalForm(Universe())
    size = 6
    row = a.expand(a.reshape(a.iota(size - 1), (size - 1, 1)), (size - 1, size))
    column = a.expand(a.reshape(a.iota(size), (1, size)), (size - 1, size))
    seen = a.number(a.compare("le", column, row), "float")
    keys = a.sum(a.multiply(a.exp(a.leaf("s", (size - 1, size), "float")), seen), [0])
    other = a.concat([a.leaf("x", (size - 1,), "float"), a.leaf("y", (1,), "float")], 0)
    scale = a.leaf("z", (size,), "float")
    found = a.exp(a.multiply(a.add([keys, other]), scale))
    nothing = a.full((1,), Fraction(0), "float")
    cut = a.concat([a.slice(keys, 0, 0, size - 1, 1), nothing], 0)
    assert equal(a.universe, found, a.exp(a.multiply(a.add([cut, other]), scale)))
    assert not equal(a.universe, found, a.exp(a.multiply(other, scale)))
