"""What an element reads otherwise: found through sums, products and functions, and never between computations that differ."""

from __future__ import annotations

import pytest

from graphguard.relations.differences import Difference, Place, Read, differing_reads
from graphguard.relations.kernels import Universe
from graphguard.relations.normal_form import NormalForm


@pytest.fixture
def forms() -> NormalForm:
    return NormalForm(Universe())


def test_another_row_through_a_function(forms: NormalForm) -> None:
    x = forms.leaf("x", (4, 3), "float")
    found, meant = (forms.exp(forms.slice(x, 0, low, low + 2)) for low in (0, 2))
    expected = Difference((0, 0), (Read(Place("x", (0, 0)), Place("x", (2, 0))),))
    assert differing_reads(forms.universe, found, meant) == expected


def test_only_the_factor_that_differs_is_told(forms: NormalForm) -> None:
    x, table = forms.leaf("x", (2, 3), "float"), forms.leaf("table", (4, 3), "float")
    found, meant = (forms.multiply(x, forms.slice(table, 0, low, low + 2)) for low in (0, 2))
    expected = Difference((0, 0), (Read(Place("table", (0, 0)), Place("table", (2, 0))),))
    assert differing_reads(forms.universe, found, meant) == expected


def test_a_transposed_table_differs_first_off_its_diagonal(forms: NormalForm) -> None:
    x, table = forms.leaf("x", (3, 3), "float"), forms.leaf("table", (3, 3), "float")
    found, meant = forms.multiply(x, forms.permute(table, (1, 0))), forms.multiply(x, table)
    expected = Difference((0, 1), (Read(Place("table", (1, 0)), Place("table", (0, 1))),))
    assert differing_reads(forms.universe, found, meant) == expected


def test_a_column_of_a_product(forms: NormalForm) -> None:
    x, w = forms.leaf("x", (2, 5), "float"), forms.leaf("w", (5, 4), "float")
    found, meant = (
        forms.exp(forms.contract([(x, "ab"), (forms.slice(w, 1, low, low + 2), "bc")], "ac")) for low in (0, 2)
    )
    expected = Difference((0, 0), (Read(Place("w", (None, 0)), Place("w", (None, 2))),))
    assert differing_reads(forms.universe, found, meant) == expected


def test_summands_that_are_missing(forms: NormalForm) -> None:
    x = forms.leaf("x", (5, 2), "float")
    found, meant = (forms.exp(forms.sum(forms.slice(x, 0, 0, high), (0,))) for high in (3, 5))
    expected = Difference((0,), (Read(Place(summands=(0, 3)), Place(summands=(0, 5))),))
    assert differing_reads(forms.universe, found, meant) == expected


def test_another_tensor(forms: NormalForm) -> None:
    x, y = forms.leaf("x", (2,), "float"), forms.leaf("y", (2,), "float")
    expected = Difference((0,), (Read(Place("x", (0,)), Place("y", (0,))),))
    assert differing_reads(forms.universe, forms.exp(x), forms.exp(y)) == expected


def test_other_computations_say_nothing(forms: NormalForm) -> None:
    x = forms.leaf("x", (2, 3), "float")
    moved = forms.slice(x, 0, 0, 1)
    assert differing_reads(forms.universe, forms.exp(x), x) is None
    assert differing_reads(forms.universe, forms.add([x, forms.exp(x)]), x) is None
    assert differing_reads(forms.universe, forms.scale(x, 2), x) is None
    assert differing_reads(forms.universe, x, x) is None
    assert differing_reads(forms.universe, moved, x) is None
