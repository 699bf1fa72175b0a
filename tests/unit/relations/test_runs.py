"""Sums over several runs of one axis: written down run by run they are what they were, and meet what adds the runs up by itself."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from graphguard.relations.prove.narrow import equal_where_thin
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.prove.views import View, runs, where_held
from graphguard.relations.simplify.triangles import without_implied
from graphguard.relations.terms.denotation import Denotation
from graphguard.relations.terms.kernels import Kernel, Universe
from graphguard.relations.terms.orientation import is_step
from graphguard.relations.terms.values import NormalValue

TOKENS, WIDTH = 24, 2


@pytest.fixture
def a() -> NormalForm:
    return NormalForm(Universe(expand=16))


def zigzag(ranks: int) -> np.ndarray:
    """The positions of all tokens in the order of the ranks' parts, two chunks a rank."""
    chunk = TOKENS // (2 * ranks)
    starts = [start * chunk for rank in range(ranks) for start in (rank, 2 * ranks - 1 - rank)]
    return np.concatenate([np.arange(start, start + chunk) for start in starts])


def attended(a: NormalForm, q: NormalValue, k: NormalValue, rows: np.ndarray, columns: np.ndarray) -> NormalValue:
    """Sums of keys, each under a mask of positions."""
    mask = a.compare(
        "le",
        a.expand(a.reshape(a.literal(columns), (1, len(columns))), (len(rows), len(columns))),
        a.expand(a.reshape(a.literal(rows), (len(rows), 1)), (len(rows), len(columns))),
    )
    weights = a.multiply(a.exp(a.contract([(q, "id"), (k, "jd")], "ij")), a.number(mask, "float"))
    return a.contract([(weights, "ij"), (k, "jd")], "id")


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_chunks_in_another_order(a: NormalForm, ranks: int) -> None:
    order, local = zigzag(ranks), TOKENS // ranks
    q, k = (a.leaf(name, (TOKENS, WIDTH), "float") for name in ("q", "k"))
    whole = attended(a, q, k, order, order)
    a.universe.specifying = False
    for rank in range(ranks):
        low, high = rank * local, (rank + 1) * local
        rows = a.slice(q, 0, low, high)
        parts, later = [], []
        for other in range(ranks):
            keys = a.slice(k, 0, other * local, (other + 1) * local)
            columns = order[other * local : (other + 1) * local]
            parts.append(attended(a, rows, keys, order[low:high], columns))
            later.append(attended(a, rows, keys, order[low:high] + 1, columns))
        wanted, found, wrong = a.slice(whole, 0, low, high), a.add(parts), a.add(later)
        assert equal_where_thin(a.universe, wanted, found)
        assert not equal_where_thin(a.universe, wanted, wrong)


@pytest.mark.parametrize("seed", range(20))
def test_windows_where_masks_hold_and_their_runs_have_the_same_sum(seed: int) -> None:
    """Against the sum over all places, for masks that run along free and summed labels with any strides."""
    draw = np.random.default_rng(seed)
    a = NormalForm(Universe(expand=16))
    x = a.leaf("x", (24,), "float")
    step = next(k for k in _kernels(a, a.compare("lt", a.iota(4), a.literal(np.full(4, 2)))) if is_step(k))
    free, spans = int(draw.integers(1, 4)), [(int(low), int(low + size)) for low, size in draw.integers(1, 4, (2, 2))]
    strides = [int(s) for s in draw.integers(-3, 4, 3)]
    start = int(draw.integers(-6, 7))
    mask = (step, 1, (), (start,), tuple((0, label, stride) for label, stride in enumerate(strides) if stride))
    moves = (x.pieces[0][1][0][1][0], 1, (), (0,), ((0, 1, 4), (0, 2, 1)))
    view = View((0,), ((0, 0, 1),), (free,))
    sign = 1 if step.factors[0][1] > 0 else -1

    def places(window: list[tuple[int, int]]) -> dict[tuple[int, int, int], bool]:
        return {
            (row, i, j): sign * (start + strides[0] * row + strides[1] * i + strides[2] * j) + step.factors[0][3][0] > 0
            for row in range(free)
            for i in range(*window[0])
            for j in range(*window[1])
        }

    wanted = {place for place, holds in places(spans).items() if holds}
    cut = runs([mask, moves], spans, 1)
    assert all(high - low == 1 for window in cut for low, high in window[:1])
    held = [where_held([mask, moves], window, view) for window in cut]
    found = [place for window in held if window is not None for place, holds in places(window).items() if holds]
    assert sorted(found) == sorted(wanted)


def test_masks_that_others_imply_are_left_away(a: NormalForm) -> None:
    """Queries that come after a key from 4 on come after every key before 4."""
    x, size = a.leaf("x", (4, 8, 4), "float"), (4, 8, 4)

    def after(dim: int, low: int) -> NormalValue:
        rows = a.reshape(a.literal(np.arange(8)), (1, 8, 1))
        other = a.reshape(a.literal(np.arange(low, low + 4)), (4, 1, 1) if dim == 0 else (1, 1, 4))
        mask = a.compare("lt", a.expand(other, size), a.expand(rows, size))
        return a.number(mask, "float")

    later = after(0, 4)
    for low in range(5):
        second, implied = after(2, low), low + 3 <= 4
        both = a.multiply(a.multiply(x, later), second)
        ((_, (term,)),) = both.pieces
        one = a.multiply(x, later)
        found = without_implied(a.universe, term, size)
        assert (found == one.pieces[0][1][0]) is implied
        assert (found == term) is not implied


@pytest.mark.parametrize("relation", ["lt", "le", "eq"])
@pytest.mark.parametrize("multiple", [-2, 3])
def test_truths_compared_with_nothing(a: NormalForm, relation: str, multiple: int) -> None:
    mask = a.number(a.compare("lt", a.iota(6), a.literal(np.full(6, 3))), "float")
    found = a.compare(relation, a.literal(np.zeros(6)), a.scale(mask, Fraction(multiple)))  # type: ignore[arg-type]
    numbers = multiple * (np.arange(6) < 3)
    wanted = {"lt": numbers > 0, "le": numbers >= 0, "eq": numbers == 0}[relation]
    np.testing.assert_array_equal(Denotation({}).value(found), wanted)


def _kernels(a: NormalForm, value: NormalValue) -> list[Kernel]:
    return [ref[0] for _, terms in value.pieces for _, ref in terms]
