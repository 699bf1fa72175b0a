"""Parts of tensors by their numbers."""

import numpy as np
import pytest

from graphguard.repair.numbers.undoing import part_wanted

ROWS = np.arange(12).reshape(4, 3)


@pytest.mark.parametrize(
    ("wanted", "found"), [(ROWS[[2, 0]], (0, (2, 0))), (ROWS[:, 1:], (1, (1, 2))), (ROWS[3], (0, (3,)))]
)
def test_a_part_is_rows_along_one_dim(wanted: np.ndarray, found: object) -> None:
    assert part_wanted(wanted, ROWS) == found


@pytest.mark.parametrize("shape", [(0, 3), (4, 0), (0, 0)])
def test_nothing_is_part_of_nothing(shape: tuple[int, int]) -> None:
    """A rank may have no rows at all."""
    assert part_wanted(np.zeros(shape, np.int64), np.zeros(shape, np.int64)) is None
