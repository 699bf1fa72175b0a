"""A flat rotation seen as rows: pieces of a view that cross the rows of the next."""

from __future__ import annotations

import numpy as np
import pytest

from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.denotation import Denotation


@pytest.mark.parametrize("shift", range(1, 20))
@pytest.mark.parametrize("rows", [(4, 5), (5, 4), (2, 10)])
def test_a_rotated_flat_tensor_in_rows(shift: int, rows: tuple[int, int]) -> None:
    x = np.arange(20.0).reshape(4, 5)
    algebra = NormalForm()
    flat = algebra.reshape(algebra.leaf("x", (4, 5), "float"), (20,))
    turned = algebra.concat([algebra.slice(flat, 0, 20 - shift, 20), algebra.slice(flat, 0, 0, 20 - shift)], 0)
    found = Denotation({"x": x}).value(algebra.reshape(turned, rows))
    np.testing.assert_array_equal(found, np.roll(x.reshape(-1), shift).reshape(rows))
