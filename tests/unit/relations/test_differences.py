"""What an element reads otherwise: found through sums, products and functions, and never between computations that differ."""

from __future__ import annotations

import pytest

from graphguard.relations.explain.differences import Difference, Place, Read, differing_reads
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.kernels import Universe
from graphguard.repair.text.reads import reads_text


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


@pytest.mark.parametrize(
    ("bounds", "found", "needed", "text"),
    [
        ((3, 5), (None, 3), (None, 5), "out[0] reads a mask of numbers up to 2, needs a mask of numbers up to 4"),
        ((0, 5), (None, 0), (None, 5), "out[0] reads a mask of numbers up to -1, needs a mask of numbers up to 4"),
    ],
)
def test_numbers_that_a_comparison_admits_have_no_end_that_is_told(
    forms: NormalForm, bounds: tuple[int, int], found: tuple[None, int], needed: tuple[None, int], text: str
) -> None:
    x, index = forms.leaf("x", (2,), "float"), forms.leaf("index", (2,), "int")
    nothing = forms.full((2,), 0, "float")
    masked = [forms.where(forms.compare("lt", index, forms.full((2,), bound, "int")), x, nothing) for bound in bounds]
    difference = differing_reads(forms.universe, *masked)
    assert difference == Difference((0,), (Read(Place(numbers=found), Place(numbers=needed)),))
    assert reads_text(difference, "out", {}) == text


def test_numbers_within_bounds(forms: NormalForm) -> None:
    x, index = forms.leaf("x", (2,), "float"), forms.leaf("index", (2,), "int", 0, 8)
    nothing = forms.full((2,), 0, "float")
    masked = [forms.where(forms.compare("lt", index, forms.full((2,), bound, "int")), x, nothing) for bound in (3, 5)]
    difference = differing_reads(forms.universe, *masked)
    assert difference is not None
    assert reads_text(difference, "out", {}) == "out[0] reads a mask of numbers 0..2, needs a mask of numbers 0..4"


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
