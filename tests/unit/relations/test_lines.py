"""Counts along lines of truths are the numbers that they count to."""

import pytest

from graphguard.relations.functions.piecewise import equal
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.kernels import Universe
from graphguard.relations.terms.values import NormalValue

ROWS, COLUMNS = 7, 5


def mask(a: NormalForm, lengths: NormalValue, first: int = 0, last: int = COLUMNS, relation: str = "lt") -> NormalValue:
    """How columns from the first to the last compare with the lengths: (ROWS, last - first)."""
    size = last - first
    columns = a.add([a.iota(size), a.full((size,), first, "int")])
    wide = a.expand(a.reshape(columns, (1, size)), (ROWS, size))
    return a.compare(relation, wide, a.expand(a.reshape(lengths, (ROWS, 1)), (ROWS, size)))  # type: ignore[arg-type]


def of(low: int, high: int) -> tuple[NormalForm, NormalValue]:
    a = NormalForm(Universe())
    return a, a.leaf("lengths", (ROWS,), "int", low, high)


@pytest.mark.parametrize(("low", "high", "known"), [(0, 6, True), (1, 5, True), (0, 7, False), (-1, 6, False)])
def test_a_mask_has_as_many_ones_as_its_length_says(low: int, high: int, known: bool) -> None:
    a, lengths = of(low, high)
    assert equal(a.universe, a.sum(mask(a, lengths), (1,)), lengths) is known


@pytest.mark.parametrize(("low", "high", "known"), [(-1, 5, True), (-1, 6, False), (-2, 5, False)])
def test_a_bound_that_is_counted_itself_is_one_more(low: int, high: int, known: bool) -> None:
    a, last = of(low, high)
    count = a.add([last, a.full((ROWS,), 1, "int")])
    assert equal(a.universe, a.sum(mask(a, last, relation="le"), (1,)), count) is known


def test_what_is_not_masked_is_the_rest() -> None:
    a, lengths = of(0, 6)
    rest = a.add([a.full((ROWS,), COLUMNS, "int"), a.scale(lengths, -1)])
    assert equal(a.universe, a.sum(a.logical_not(mask(a, lengths)), (1,)), rest)


def test_parts_of_a_line_are_put_together() -> None:
    a, lengths = of(0, 6)
    parts = [a.sum(mask(a, lengths, first, last), (1,)) for first, last in ((0, 2), (2, 5))]
    assert not equal(a.universe, parts[0], lengths)
    assert equal(a.universe, a.add(parts), lengths)
