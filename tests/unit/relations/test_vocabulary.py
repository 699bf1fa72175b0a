"""Vocabulary-parallel look-ups: masks of ranks in the middle are bounded on both sides."""

import itertools
from fractions import Fraction

import pytest

from graphguard.relations.functions.piecewise import equal
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.kernels import Universe
from graphguard.relations.terms.values import NormalValue

TOKENS, WIDTH = 5, 3


def partial_rows(
    a: NormalForm, ids: NormalValue, table: NormalValue, low: int, high: int, mask_rows: bool
) -> NormalValue:
    """What one rank adds: its rows of the table where the index lies in its part, else zero."""

    def number(value: int) -> NormalValue:
        return a.full((TOKENS,), Fraction(value), "int")

    outside = a.logical_or(a.compare("lt", ids, number(low)), a.compare("le", number(high), ids))
    index = a.where(outside, number(0), a.add([ids, number(-low)]))
    rows = a.lookup(a.slice(table, 0, low, high), index)
    if not mask_rows:
        return rows
    wide = a.expand(a.reshape(outside, (TOKENS, 1)), (TOKENS, WIDTH))
    return a.where(wide, a.full((TOKENS, WIDTH), Fraction(0), "float"), rows)


@pytest.mark.parametrize("cuts", [(0, 6, 12), (0, 4, 8, 12), (0, 5, 6, 9, 12)])
@pytest.mark.parametrize("mask_rows", [True, False])
def test_masked_look_ups_add_up_to_the_whole(cuts: tuple[int, ...], mask_rows: bool) -> None:
    universe = Universe()
    a = NormalForm(universe)
    ids = a.leaf("ids", (TOKENS,), "int", 0, cuts[-1])
    table = a.leaf("table", (cuts[-1], WIDTH), "float")
    whole = a.lookup(table, ids)
    universe.specifying = False
    parts = [partial_rows(a, ids, table, low, high, mask_rows) for low, high in itertools.pairwise(cuts)]
    assert equal(universe, a.add(parts), whole) is mask_rows
