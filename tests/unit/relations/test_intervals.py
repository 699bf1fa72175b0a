"""Counts are as large as what is counted is long: look-ups by running counts lie inside their tables."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from graphguard.relations.algebra import Unsupported
from graphguard.relations.facts.intervals import between
from graphguard.relations.numbers import Numbers
from graphguard.relations.prove.normal_form import NormalForm

LENGTH = 4


def running(a, mask, low, high):
    """Of every element, how many up to it are, of those that a mask of numbers from low to high holds."""
    before = np.tril(np.ones((LENGTH, LENGTH), dtype=np.int64))
    return a.contract([(a.literal(before), "ij"), (mask, "j")], "i")


@pytest.mark.parametrize(("low", "high"), [(0, 2), (0, 4), (-1, 2), (-3, 0), (2, 3)])
@pytest.mark.parametrize("power", [1, 2, 3])
def test_bounds_hold_for_all_numbers_of_the_ranges(low, high, power):
    a, numbers = NormalForm(), Numbers()
    x, y = (a.leaf(name, (LENGTH,), "int", low, high) for name in "xy")
    chosen = range(low, high)
    forms = {
        "product": lambda a, x, y: a.multiply(x, y),
        "square": lambda a, x, y: a.multiply(a.multiply(x, x), y) if power > 1 else x,
        "cube": lambda a, x, y: a.multiply(a.multiply(x, x), x) if power > 2 else y,
        "sum": lambda a, x, y: a.sum(a.multiply(x, y), [0]),
        "running": lambda a, x, y: running(a, a.multiply(x, y), low, high),
    }
    for form in forms.values():
        seen = []
        for one, other in product(chosen, chosen):
            given = (numbers.literal(np.full(LENGTH, value)) for value in (one, other))
            seen += np.asarray(form(numbers, *given).array).reshape(-1).tolist()
        for _, terms in form(a, x, y).pieces:
            if len(terms) == 1 and (found := between(terms[0][1])) is not None:
                values = [value / float(terms[0][0]) for value in seen]
                assert found[0] <= min(values)
                assert max(values) < found[1]


def test_what_is_not_bounded_has_no_bounds():
    a = NormalForm()
    x = a.leaf("x", (LENGTH,), "int")
    assert between(x.pieces[0][1][0][1]) is None
    assert between(a.sum(a.multiply(x, x), [0]).pieces[0][1][0][1]) is None


def test_a_running_count_is_looked_up_in_a_table_that_is_long_enough():
    a = NormalForm()
    mask = a.leaf("mask", (LENGTH,), "int", 0, 2)
    a.universe.specifying = False
    counts = running(a, mask, 0, 2)
    a.one_hot(counts, LENGTH + 1, checked=True)
    with pytest.raises(Unsupported, match="outside the table"):
        a.one_hot(counts, LENGTH, checked=True)
