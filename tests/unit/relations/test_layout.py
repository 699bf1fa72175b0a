"""Layout of values in pieces: the elements stay in place, and pieces stay few."""

from __future__ import annotations

import numpy as np
import pytest

from graphguard.relations.functions.piecewise import equal
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.denotation import Denotation

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


@pytest.mark.parametrize("shifts", [(0, 1), (0, 1, 2), (1, 4), (3, 5, 0)])
@pytest.mark.parametrize("times", [2, 3])
def test_repeated_elements_of_parts_are_added_where_they_lie_unevenly(times: int, shifts: tuple[int, ...]) -> None:
    """As a convolution reads an enlarged image between its neighbours' edges: the parts' repetitions begin at any place."""
    size = 4
    data = np.random.default_rng(1).normal(size=size)
    a = NormalForm()
    x = a.leaf("x", (size,), "float")

    def repeated(low: int, high: int) -> object:
        part = a.reshape(a.slice(x, 0, low, high), (high - low, 1))
        return a.reshape(a.expand(part, (high - low, times)), ((high - low) * times,))

    edge = a.full((1,), 0, "float")
    whole = a.concat([edge, repeated(0, size), edge], 0)
    parts = a.concat([edge, repeated(0, 1), repeated(1, size), edge], 0)
    length = size * times + 2 - max(shifts)

    def added(value: object) -> object:
        return a.add([a.slice(value, 0, shift, shift + length) for shift in shifts])

    plain = np.concatenate([[0], np.repeat(data, times), [0]])
    expected = sum(plain[shift : shift + length] for shift in shifts)
    for value in (whole, parts):
        np.testing.assert_allclose(Denotation({"x": data}).value(added(value)), expected, rtol=1e-12)
    assert equal(a.universe, added(whole), added(parts))
