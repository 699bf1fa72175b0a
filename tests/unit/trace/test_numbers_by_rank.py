"""Numbers that know what they are on every rank, and which ranks their use tells apart."""

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from graphguard.trace.claims.placements import layouts_between
from graphguard.trace.classes.numbers import Number, Sounding
from graphguard.trace.classes.sounding import Soundings

RANKS = 12


def sounded(me: int = 0) -> tuple[Sounding, Any]:
    sounding = Sounding(me, range(RANKS))
    return sounding, sounding.number({rank: rank for rank in range(RANKS)})


def values(number: Any) -> list[Any]:
    assert type(number) is Number
    return [number.values[rank] for rank in number.sounding.alike]


@pytest.mark.parametrize(
    "function",
    [
        lambda r: (r + 1) % RANKS, lambda r: 3 - 2 * r, lambda r: -r, lambda r: r // 4, lambda r: r ^ 1, lambda r: 1 << r, lambda r: (r * r) % 5,
        lambda r: r / 4, lambda r: 2.5 * r, lambda r: divmod(r, 5)[1], lambda r: divmod(40, r + 3)[0], lambda r: round(r / 3), lambda r: math.ceil(r / 5),
        lambda r: abs(r - 6), lambda r: 2**r, lambda r: r & 6, lambda r: ~r, lambda r: copy.deepcopy(r) + 1,
    ],
)  # fmt: skip
def test_arithmetic_is_that_of_every_rank(function: Callable[[Any], Any]) -> None:
    sounding, rank = sounded(me=5)
    assert values(function(rank)) == [function(each) for each in range(RANKS)]
    assert sounding.alike == tuple(range(RANKS))


@pytest.mark.parametrize(
    ("decides", "alike"),
    [
        (lambda r: r == 5, set(range(RANKS)) - {5}),
        (lambda r: r >= 6, set(range(6))),
        (lambda r: r % 2 == 0, set(range(0, RANKS, 2))),
        (lambda r: bool(r), {0}),
        (lambda r: not r % 3, {0, 3, 6, 9}),
        (lambda r: 0 < r < 9, {0}),
        (lambda r: min(6 * r, 45), {0, *range(1, 8)}),
        (lambda r: r in (3, 7), set(range(RANKS)) - {3, 7}),
        (lambda r: r in {3, 7}, {0}),
        (lambda r: {0: 1.0, 3: 2.0}.get(r), {0}),
        (lambda r: str(r), {0}),
        (lambda r: f"{r % 2}", set(range(0, RANKS, 2))),
        (lambda r: range(r), {0}),
        (lambda r: [1] * RANKS and "abc"[r // 6], set(range(6))),
        (lambda r: int(r) + 1, {0}),
        (lambda r: math.sqrt(r), {0}),
        (lambda r: pickle.dumps(r), {0}),
        (lambda r: 10 // (r - 4), set(range(RANKS)) - {4}),
        (lambda r: r.bit_length(), {0}),
        (lambda r: (r - r) == 0, set(range(RANKS))),
        (lambda r: (r + 1) % RANKS == r, set(range(RANKS))),
        (lambda r: isinstance(r, int) and r is not None and r != "text", set(range(RANKS))),
    ],
)  # fmt: skip
def test_what_decides_tells_ranks_apart(decides: Callable[[Any], Any], alike: set[int]) -> None:
    sounding, rank = sounded()
    decides(rank)
    assert set(sounding.alike) == alike


def test_ranks_that_are_alike_have_the_same_outcome() -> None:
    """The first rank's answers are the answers of all that are like it, and of nobody else."""

    def answers(rank: Any) -> tuple[bool, ...]:
        return rank % 2 == 0, rank > 7, rank * 3 % 7 < 4, rank == 11

    for me in range(RANKS):
        sounding, rank = sounded(me)
        assert answers(rank) == answers(me)
        assert set(sounding.alike) == {each for each in range(RANKS) if answers(each) == answers(me)}


def test_a_number_that_is_the_same_on_all_is_plain() -> None:
    _, rank = sounded()
    assert type(rank - rank) is int
    assert type(rank // RANKS) is int


def test_what_is_not_followed_has_its_line() -> None:
    sounding, rank = sounded()
    str(rank)
    ((file, _),) = sounding.unfollowed
    assert file == __file__
    assert not sounding.split


def test_how_a_parameter_is_cut_tells_no_ranks_apart() -> None:
    soundings = Soundings(0, {"dp": 64, "tp": 2})
    (layout,) = layouts_between((32, 8), (16, 8), soundings.mesh)
    assert list(layout) == ["tp"]
    assert soundings.found().alike == tuple(range(128))
