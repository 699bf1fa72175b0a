"""Numbers fitted as functions of coordinates: exact, and never from as few samples as could have been anything."""

from collections.abc import Callable
from fractions import Fraction
from itertools import product

import pytest

from graphguard.trace.classes.forms import fitted, solved

SIZES = (8, 6)


def seen(function: Callable[..., int], places: list[tuple[int, ...]]) -> dict[tuple[int, ...], Fraction]:
    return {place: Fraction(function(*place)) for place in places}


CROSS = [(0, 0), (1, 0), (7, 0), (0, 1), (0, 5), (7, 5)]


@pytest.mark.parametrize(
    ("sizes", "places", "function"),
    [
        ((64,), [(0,), (1,), (63,)], lambda r: 7),
        ((64,), [(0,), (1,), (63,)], lambda r: 5 - 3 * r),
        ((64,), [(0,), (1,), (40,), (63,)], lambda r: 4 * ((r + 5) % 64)),
        ((64,), [(0,), (1,), (40,), (63,)], lambda r: (r - 1) % 64),
        ((64,), [(0,), (1,), (40,), (63,)], lambda r: 3 * (63 - (r + 2) % 64)),
        ((8,), [(0,), (1,), (2,), (4,), (7,)], lambda r: 5 * (r // 4) + 3 * (r % 2)),
        (SIZES, CROSS, lambda a, b: 12 * a + 2 * b + 1),
        (SIZES, CROSS, lambda a, b: 6 * a),
        (SIZES, [*CROSS, (4, 3)], lambda a, b: 6 * a + (b + 1) % 6),
    ],
)
def test_forms_give_every_number(
    sizes: tuple[int, ...], places: list[tuple[int, ...]], function: Callable[..., int]
) -> None:
    form = fitted(seen(function, places), sizes)
    assert form is not None
    assert all(form(place) == function(*place) for place in product(*map(range, sizes)))


@pytest.mark.parametrize(
    ("sizes", "places", "function"),
    [
        ((64,), [(0,)], lambda r: 7),
        ((64,), [(0,), (63,)], lambda r: 3 * r),
        ((64,), [(0,), (1,), (63,)], lambda r: (r + 5) % 64),
        ((64,), [(0,), (1,), (30,), (63,)], lambda r: r * r),
        ((64,), [(0,), (1,), (30,), (63,)], lambda r: r ^ 1),
        (SIZES, CROSS, lambda a, b: a * b),
        (SIZES, [(0, 0), (1, 0), (0, 1)], lambda a, b: a + b),
    ],
)
def test_nothing_is_guessed(
    sizes: tuple[int, ...], places: list[tuple[int, ...]], function: Callable[..., int]
) -> None:
    assert fitted(seen(function, places), sizes) is None


def test_linear_equations() -> None:
    rows = [[Fraction(each) for each in row] for row in ((1, 2, 5), (3, 4, 11), (4, 6, 16))]
    assert solved(rows) == [1, 2]
    assert solved([*rows, [Fraction(1), Fraction(1), Fraction(4)]]) is None
    assert solved(rows[:1]) is None
