"""Where the largest of a line stands, whole and from its parts."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from graphguard.relations.functions.piecewise import equal
from graphguard.relations.functions.places import joined_places
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.denotation import Denotation
from graphguard.relations.terms.kernels import Universe
from graphguard.relations.terms.values import NormalValue

Later = Callable[[NormalForm, NormalValue, NormalValue], NormalValue]


def strictly(a: NormalForm, top: NormalValue, other: NormalValue) -> NormalValue:
    return a.compare("lt", top, other)


def not_smaller(a: NormalForm, top: NormalValue, other: NormalValue) -> NormalValue:
    return a.logical_not(a.compare("le", other, top))


def or_equal(a: NormalForm, top: NormalValue, other: NormalValue) -> NormalValue:
    return a.compare("le", top, other)


def answers(a: NormalForm, x: NormalValue, cuts: list[int], shift: int = 0) -> list[tuple[NormalValue, NormalValue]]:
    """The maximum of every part of the last dim, and its place in the whole."""
    out = []
    for low, high in itertools.pairwise(cuts):
        part = a.slice(x, 1, low, high)
        place = a.place_of_largest(part, 1)
        out.append((a.max_over(part, [1]), a.add([place, a.full(place.shape, Fraction(low + shift), "int")])))
    return out


def chosen(a: NormalForm, parts: list[tuple[NormalValue, NormalValue]], later: Later = strictly) -> NormalValue:
    top, place = parts[0]
    for other, there in parts[1:]:
        top, place = a.maximum(top, other), a.where(later(a, top, other), there, place)
    return place


@pytest.mark.parametrize("later", [strictly, not_smaller])
@pytest.mark.parametrize("cuts", [[0, 3, 6], [0, 2, 4, 6], [0, 1, 3, 6], [0, 2, 3, 4, 6]])
def test_one_by_one(cuts: list[int], later: Later) -> None:
    a = NormalForm()
    x = a.leaf("x", (4, 6), "float")
    whole = a.place_of_largest(x, 1)
    a.universe.specifying = False
    if all(high - low > 1 for low, high in itertools.pairwise(cuts)):
        assert equal(a.universe, chosen(a, answers(a, x, cuts), later), whole)
    assert not equal(a.universe, chosen(a, answers(a, x, cuts), or_equal), whole)  # of equal ones it takes the last
    assert not equal(a.universe, chosen(a, answers(a, x, cuts)[::-1]), whole)
    assert not equal(a.universe, chosen(a, answers(a, x, cuts, shift=1)), whole)
    assert not equal(a.universe, chosen(a, answers(a, x, cuts)[:-1]), whole)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_gathered(ranks: int) -> None:
    """The place of the largest maximum chooses among the places."""
    a = NormalForm()
    x = a.leaf("x", (4, 12), "float")
    whole = a.place_of_largest(x, 1)
    a.universe.specifying = False
    parts = answers(a, x, [12 // ranks * rank for rank in range(ranks + 1)])
    for order, holds in ((parts, True), (parts[::-1], False)):
        tops, places = (a.concat([a.reshape(v, (4, 1)) for v in row], 1) for row in zip(*order, strict=True))
        hot = a.one_hot(a.place_of_largest(tops, 1), ranks)
        found = a.number(a.contract([(hot, "ab"), (a.number(places, "float"), "ab")], "a"), "int")
        assert equal(a.universe, found, whole) is holds


def test_shards_of_other_dims() -> None:
    a = NormalForm()
    x = a.leaf("x", (4, 6), "float")
    whole = a.place_of_largest(x, 1)
    a.universe.specifying = False
    part = a.place_of_largest(a.slice(x, 0, 2, 4), 1)
    assert equal(a.universe, part, a.slice(whole, 0, 2, 4))
    assert not equal(a.universe, part, a.slice(whole, 0, 0, 2))


LINES: dict[str, Callable[[Any, Any], Any]] = {
    "as it is": lambda a, x: x,
    "backwards": lambda a, x: a.flip(x, 1),
    "every other": lambda a, x: a.slice(x, 1, 0, 6, 2),
    "in another order": lambda a, x: a.concat([a.slice(x, 1, 3, 6), a.slice(x, 1, 0, 3)], 1),
    "of two dims": lambda a, x: a.reshape(a.permute(x, [1, 0]), (1, 24)),
    "the opposite": lambda a, x: a.scale(x, Fraction(-2)),
    "alike": lambda a, x: a.expand(a.slice(x, 1, 2, 3), (4, 6)),
}


@pytest.mark.parametrize("name", LINES)
def test_the_first_of_equal_ones(name: str) -> None:
    """Elements of few different sizes, so that most lines have several that are largest."""
    for seed in range(20):
        data = np.random.default_rng(seed).integers(0, 3, (4, 6)).astype(float)
        a = NormalForm()
        line = LINES[name](a, a.leaf("x", (4, 6), "float"))
        values = Denotation({"x": data}, lambda what, _, arrays: arrays[0].argmax(-1))
        wanted = values.value(line).argmax(1)
        place = a.place_of_largest(line, 1)
        if not any(ref[0].kind == "opaque" for _, terms in place.pieces for _, ref in terms):
            assert (values.value(place) == wanted).all()
        else:
            assert name in ("backwards", "in another order", "of two dims")


@pytest.mark.timeout(20)
def test_a_mask_that_a_kernel_of_the_specification_brings_back() -> None:
    """A place without a mask that holds where one looks is seen to be a window of the specification's with it: it is itself, and nothing is taken apart for ever."""
    a = NormalForm(Universe())
    place = a.place_of_largest(a.leaf("x", (4, 6), "float"), 1)
    mask = a.compare("lt", a.iota(4), a.full((4,), Fraction(3), "int"))
    kept = a.multiply(a.multiply(place, mask), a.compare("eq", place, a.leaf("d", (4,), "int")))
    a.universe.specifying = False
    ((_, ((_, (kernel, _, _, window)),)),) = kept.pieces
    rows = [(1, (kernel, (row,), ((),), window)) for row in range(3)]
    assert joined_places(a.universe, rows, (1,)) == rows
