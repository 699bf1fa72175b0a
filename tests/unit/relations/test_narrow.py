"""What is one index thick, written down at its place: the same numbers as before, one form with what a program knows as numbers, and nothing else is taken for it."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from benchmarks.trust.fuzz import closed
from graphguard.relations.algebra import Unsupported
from graphguard.relations.prove.narrow import continued, equal_where_thin, written_at_places
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.prove.views import above_zero
from graphguard.relations.terms.denotation import Denotation
from graphguard.relations.terms.kernels import UNBOUNDED, Universe
from graphguard.relations.terms.values import NormalValue

ROWS, WIDTH = 5, 3


@pytest.fixture
def a() -> NormalForm:
    return NormalForm(Universe(expand=16))


def positions(a: NormalForm, low: int, high: int) -> NormalValue:
    return a.literal(np.arange(low, high))


def turned(a: NormalForm, x: NormalValue, at: NormalValue) -> NormalValue:
    """Rows times a function of their positions, which differs for every column."""
    speeds = a.exp(a.scale(a.iota(WIDTH), Fraction(-1, 2)))
    angle = a.multiply(
        a.expand(a.reshape(at, (*at.shape, 1)), x.shape), a.expand(a.reshape(speeds, (1, WIDTH)), x.shape)
    )
    return a.multiply(x, a.apply("cos", (), [angle], "float"))


def scores(a: NormalForm, q: NormalValue, k: NormalValue) -> NormalValue:
    return a.exp(a.contract([(q, "id"), (k, "jd")], "ij"))


def shares(a: NormalForm, q: NormalValue, k: NormalValue) -> NormalValue:
    weights = scores(a, q, k)
    return a.multiply(
        weights, a.expand(a.reshape(a.power(a.sum(weights, [1]), Fraction(-1)), (q.shape[0], 1)), weights.shape)
    )


def test_a_row_at_a_position_that_is_known_as_a_number(a: NormalForm) -> None:
    x = a.leaf("x", (ROWS, WIDTH), "float")
    whole = turned(a, x, positions(a, 0, ROWS))
    a.universe.specifying = False
    for row in range(ROWS):
        one = turned(a, a.slice(x, 0, row, row + 1), positions(a, row, row + 1))
        assert equal_where_thin(a.universe, a.slice(whole, 0, row, row + 1), one)
        other = turned(a, a.slice(x, 0, row, row + 1), positions(a, row + 1, row + 2))
        assert not equal_where_thin(a.universe, a.slice(whole, 0, row, row + 1), other)


def cached(a: NormalForm, x: NormalValue, last: int) -> NormalValue:
    """All rows but the last, and then the last, as a cache has them; at this position."""
    start = turned(a, a.slice(x, 0, 0, ROWS - 1), positions(a, 0, ROWS - 1))
    return a.concat([start, turned(a, a.slice(x, 0, ROWS - 1, ROWS), positions(a, last, last + 1))], 0)


@pytest.mark.parametrize("act", [lambda a, q, k: scores(a, q, k), lambda a, q, k: shares(a, q, k)])
def test_the_last_query_over_a_cache(a: NormalForm, act: Any) -> None:
    x = a.leaf("x", (ROWS, WIDTH), "float")
    keys = turned(a, x, positions(a, 0, ROWS))
    whole = a.slice(act(a, keys, keys), 0, ROWS - 1, ROWS)
    a.universe.specifying = False
    query = turned(a, a.slice(x, 0, ROWS - 1, ROWS), positions(a, ROWS - 1, ROWS))
    assert len(cached(a, x, ROWS - 1).pieces) == 1
    assert equal_where_thin(a.universe, whole, act(a, query, cached(a, x, ROWS - 1)))
    assert len(cached(a, x, ROWS).pieces) == 2
    assert not equal_where_thin(a.universe, whole, act(a, query, cached(a, x, ROWS)))


def test_a_piece_continues_nothing_beyond_what_there_is(a: NormalForm) -> None:
    x, y = a.leaf("x", (ROWS, WIDTH), "float"), a.leaf("y", (1, WIDTH), "float")
    both = a.concat([turned(a, x, positions(a, 0, ROWS)), turned(a, y, positions(a, ROWS, ROWS + 1))], 0)
    assert len(continued(a.universe, both).pieces) == 2


def test_a_table_without_numbers_stays(a: NormalForm) -> None:
    """Infinities and what is not a number have no terms."""
    table = a.literal(np.array([[0.5, math.inf, 0.25], [math.nan, 1.5, 2.75]]))
    row = a.slice(a.slice(table, 0, 1, 2), 1, 0, 1)
    assert equal_where_thin(a.universe, row, row)
    assert not equal_where_thin(a.universe, row, a.full((1, 1), Fraction(0), "float"))


def grown(a: Any, draw: np.random.Generator, x: Any, y: Any, at: Any) -> Any:
    """A matrix of random steps over rows of two leaves, which stand at these positions, and over all rows of one."""
    shape = x.shape
    rows = a.expand(a.reshape(at, (shape[0], 1)), shape)
    columns = a.expand(a.reshape(a.iota(WIDTH), (1, WIDTH)), shape)
    made = [x, y, rows, columns]
    for _ in range(6):
        one, two = (made[int(draw.integers(len(made)))] for _ in range(2))
        match int(draw.integers(8)):
            case 0 | 1:
                made.append(a.multiply(one, two))
            case 2:
                made.append(a.add([one, a.scale(two, Fraction(int(draw.integers(1, 4)), 3))]))
            case 3:
                made.append(a.apply("cos", (), [one], "float"))
            case 4:
                keys = a.leaf("keys", (4, WIDTH), "float")
                made.append(a.contract([(one, "ij"), (keys, "kj"), (keys, "kc")], "ic"))
            case 5:
                mask = a.compare("ge", rows, a.scale(columns, Fraction(int(draw.integers(1, 3)))))
                made.append(a.multiply(one, mask))
            case 6:
                made.append(a.exp(a.scale(a.apply("sin", (), [one], "float"), Fraction(1, 2))))
            case _:
                length = a.add([a.sum(a.multiply(one, one), [1]), a.full(shape[:1], Fraction(1), "float")])
                made.append(
                    a.multiply(two, a.expand(a.reshape(a.power(length, Fraction(-1, 2)), (shape[0], 1)), shape))
                )
    return made[-1]


DATA = {"x": (4, WIDTH), "y": (4, WIDTH), "keys": (4, WIDTH)}


def drawn(draw: np.random.Generator) -> dict[str, np.ndarray]:
    return {name: draw.uniform(0.5, 1.5, shape) for name, shape in DATA.items()}


@pytest.mark.parametrize("seed", range(120))
def test_only_what_is_equal_is_said_to_be(a: NormalForm, seed: int) -> None:
    """A row worked out by itself, of this or another row of a leaf and at this or another position."""
    draw, at, places = np.random.default_rng(seed), seed % 4, seed // 4 % 3
    data = drawn(np.random.default_rng(seed + 1))
    x, y = a.leaf("x", DATA["x"], "float"), a.leaf("y", DATA["y"], "float")
    other = min(at + (places == 1), 3)
    position = at + (places == 2)
    try:
        whole = a.slice(grown(a, np.random.default_rng(seed), x, y, positions(a, 0, 4)), 0, at, at + 1)
        a.universe.specifying = False
        one = grown(
            a, draw, a.slice(x, 0, other, other + 1), a.slice(y, 0, at, at + 1), positions(a, position, position + 1)
        )
    except Unsupported:
        return
    tables = {kernel.id: table for kernel, table in a.universe.tables}
    numbers = [Denotation(data, closed, tables).value(value) for value in (whole, one)]
    assert not equal_where_thin(a.universe, whole, one) or np.allclose(*numbers, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_what_is_written_down_are_the_same_numbers(a: NormalForm, seed: int, anew: bool) -> None:
    draw = np.random.default_rng(seed)
    data = drawn(draw)
    try:
        value = grown(a, draw, a.leaf("x", DATA["x"], "float"), a.leaf("y", DATA["y"], "float"), positions(a, 0, 4))
    except Unsupported:
        return
    tables = {kernel.id: table for kernel, table in a.universe.tables}
    for dim, extent in enumerate((4, WIDTH)):
        at = int(draw.integers(extent))
        thin = a.slice(value, dim, at, at + 1)
        numbers = Denotation(data, closed, tables)
        np.testing.assert_allclose(
            numbers.value(written_at_places(a.universe, thin, anew)), numbers.value(thin), rtol=1e-9, atol=1e-9
        )


@pytest.mark.parametrize("start", range(-9, 10))
@pytest.mark.parametrize("step", [-4, -3, -1, 1, 2, 5])
def test_where_a_mask_holds(start: int, step: int) -> None:
    for size in range(9):
        assert list(above_zero(start, step, size)) == [at for at in range(size) if start + step * at > 0]
    assert len(above_zero(start, step, UNBOUNDED)) in range(UNBOUNDED + 1)  # nothing is counted one by one
