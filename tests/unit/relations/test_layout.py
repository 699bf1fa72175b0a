"""Layout of values in pieces: the elements stay in place, and pieces stay few."""

from __future__ import annotations

import numpy as np
import pytest

from graphguard.relations.denotation import Denotation
from graphguard.relations.normal_form import NormalForm

HEADS, HALF = 6, 4


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("rest", [2 * HALF, 4 * HALF, 3 * HALF, 1])
def test_halves_of_heads_beside_other_columns_stay_pieces_of_all_heads(before: bool, rest: int) -> None:
    a = NormalForm()
    shapes = {"x": (HEADS, HALF), "y": (HEADS, HALF), "z": (rest,)}
    x, y, z = (a.leaf(name, shape, "float") for name, shape in shapes.items())
    turned = a.reshape(a.concat([x, y], 1), (2 * HALF * HEADS,))
    both = a.concat([z, turned] if before else [turned, z], 0)
    numbers = {name: np.random.default_rng(0).normal(size=shape) for name, shape in shapes.items()}
    columns = np.concatenate([numbers["x"], numbers["y"]], 1).reshape(-1)
    order = [numbers["z"], columns] if before else [columns, numbers["z"]]
    assert np.array_equal(Denotation(numbers).value(both), np.concatenate(order))
    if rest % (2 * HALF) == 0:
        assert len(both.pieces) == 3
