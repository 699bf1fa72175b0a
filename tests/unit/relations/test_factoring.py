"""Sums of several terms that are multiplied before the ranks' parts are added."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from graphguard.relations.functions.piecewise import equal
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.denotation import Denotation
from graphguard.relations.terms.values import NormalValue

HEADS, ROWS, WIDTH = 6, 4, 5


@pytest.fixture
def a() -> NormalForm:
    return NormalForm()


def partial(a: NormalForm, low: int, high: int) -> NormalValue:
    """Two terms, each added up over some of the heads: ``sum over h of (x u + y v)``."""
    parts = []
    for name, weight in (("x", "u"), ("y", "v")):
        rows = a.slice(a.leaf(name, (HEADS, ROWS, WIDTH), "float"), 0, low, high)
        parts.append(a.contract([(rows, "hrd"), (a.slice(a.leaf(weight, (HEADS,), "float"), 0, low, high), "h")], "rd"))
    return a.add(parts)


def turned(a: NormalForm, v: NormalValue) -> NormalValue:
    return a.multiply(v, a.leaf("c", (ROWS, WIDTH), "float"))


def projected(a: NormalForm, v: NormalValue) -> NormalValue:
    return a.contract([(v, "rd"), (a.leaf("w", (WIDTH, 3), "float"), "dk")], "rk")


@pytest.mark.parametrize("act", [turned, projected])
@pytest.mark.parametrize("cuts", [(0, 3, 6), (0, 1, 6), (0, 2, 4, 6)])
def test_parts_add_up_to_the_whole(a: NormalForm, act: object, cuts: tuple[int, ...]) -> None:
    assert callable(act)
    parts = [act(a, partial(a, low, high)) for low, high in itertools.pairwise(cuts)]
    total = a.add(parts)
    assert equal(a.universe, total, act(a, partial(a, 0, HEADS)))
    draw = np.random.default_rng(3)
    shapes = {
        "x": (HEADS, ROWS, WIDTH),
        "y": (HEADS, ROWS, WIDTH),
        "u": HEADS,
        "v": HEADS,
        "c": (ROWS, WIDTH),
        "w": (WIDTH, 3),
    }
    leaves = {name: draw.normal(size=shape) for name, shape in shapes.items()}
    found = sum(Denotation(leaves).value(part) for part in parts)
    np.testing.assert_allclose(Denotation(leaves).value(total), found, rtol=1e-9)


@pytest.mark.parametrize("act", [turned, projected])
def test_parts_that_are_missing_or_counted_twice(a: NormalForm, act: object) -> None:
    assert callable(act)
    whole = act(a, partial(a, 0, HEADS))
    assert not equal(a.universe, a.add([act(a, partial(a, 0, 3)), act(a, partial(a, 4, HEADS))]), whole)
    assert not equal(a.universe, a.add([act(a, partial(a, 0, 4)), act(a, partial(a, 3, HEADS))]), whole)
    halved = a.scale(act(a, partial(a, 3, HEADS)), Fraction(1, 2))
    assert not equal(a.universe, a.add([act(a, partial(a, 0, 3)), halved]), whole)


def test_parts_with_other_factors(a: NormalForm) -> None:
    other = a.multiply(partial(a, 3, HEADS), a.leaf("e", (ROWS, WIDTH), "float"))
    assert not equal(a.universe, a.add([turned(a, partial(a, 0, 3)), other]), turned(a, partial(a, 0, HEADS)))


def test_sums_that_share_a_term(a: NormalForm) -> None:
    """``c (x + y) + c (x - y)`` is ``2 c x``."""
    x, y = (a.leaf(name, (ROWS, WIDTH), "float") for name in "pq")
    both = a.add([turned(a, a.add([x, y])), turned(a, a.add([x, a.scale(y, Fraction(-1))]))])
    assert equal(a.universe, both, a.scale(turned(a, x), Fraction(2)))
