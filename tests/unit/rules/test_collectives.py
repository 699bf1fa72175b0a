"""Reductions of one value per member."""

from __future__ import annotations

import numpy as np
import pytest

from graphguard.relations.algebra import Unsupported
from graphguard.relations.numbers import Numbers
from graphguard.rules import combine

ALGEBRA = Numbers()
MEMBERS = [np.array([1.0, -2.0]), np.array([3.0, 5.0]), np.array([-4.0, 0.5])]


@pytest.mark.parametrize(
    ("reduce", "expected"),
    [
        ("sum", sum(MEMBERS)),
        ("avg", sum(MEMBERS) / 3),
        ("max", np.max(MEMBERS, axis=0)),
        ("min", np.min(MEMBERS, axis=0)),
        ("product", np.prod(MEMBERS, axis=0)),
    ],
)
def test_reduction(reduce: str, expected: np.ndarray) -> None:
    found = combine(ALGEBRA, reduce, [ALGEBRA.literal(member) for member in MEMBERS])
    np.testing.assert_allclose(found.array, expected)


def test_truth_is_added_by_or() -> None:
    members = [ALGEBRA.literal(np.array(row)) for row in ([True, False], [True, False])]
    assert combine(ALGEBRA, "sum", members).array.tolist() == [True, False]


@pytest.mark.parametrize("reduce", ["avg", "bxor"])
def test_what_has_no_meaning_is_refused(reduce: str) -> None:
    with pytest.raises(Unsupported):
        combine(ALGEBRA, reduce, [ALGEBRA.literal(np.array([1, 2]))] * 2)
