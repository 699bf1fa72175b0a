"""Known positions: what is taken by them, however they run."""

from __future__ import annotations

import numpy as np
import pytest

from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.denotation import Denotation
from graphguard.rules.basis.index_maps import from_the_front, in_few_pieces, take

ROWS = 12


@pytest.mark.parametrize(
    "indices",
    [
        [0, 1, 2, 3],
        [2, 5, 8, 11],
        [9, 7, 5],
        [4, 4, 4, 4],
        [7],
        [3, 9],
        [9, 3],
        [0, 1, 0, 1, 0, 1],
        [0, 1, 2, 7, 8, 9],
        [-1, -2, -3],
        [-12, 0, 3],
        list(range(ROWS)),
    ],
)
def test_rows_at_known_positions(indices: list[int]) -> None:
    algebra = NormalForm()
    x = algebra.leaf("x", (ROWS, 3), "float")
    data = np.arange(ROWS * 3.0).reshape(ROWS, 3)
    taken = take(algebra, x, 0, np.array(indices, dtype=np.int64))
    assert (Denotation({"x": data}).value(taken) == data[indices]).all()


def test_positions_that_run_evenly_are_one_piece() -> None:
    algebra = NormalForm()
    x = algebra.leaf("x", (5000, 3), "float")
    assert len(take(algebra, x, 0, np.arange(4999, -1, -1)).pieces) == 1
    assert in_few_pieces(np.arange(5000))
    assert not in_few_pieces(np.random.default_rng(1).permutation(5000))


def test_positions_from_the_end() -> None:
    assert from_the_front(np.array([-1, 0, -5], dtype=np.int32), 5).tolist() == [4, 0, 0]
    assert from_the_front(np.array([], dtype=np.int64), 5).size == 0
