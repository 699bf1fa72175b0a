"""Ranks in words."""

import pytest

from graphguard.ir.ranks import ranks_text


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ((3,), "rank 3"),
        ((0, 2), "ranks 0, 2"),
        ((1, 0, 3, 2), "ranks 1, 0, 3, 2"),
        (range(512), "ranks 0 to 511"),
        ((*range(4), *range(8, 16)), "ranks 0, 1, 2, 3, 8 to 15"),
        (range(3, 512, 8), "ranks 3, 11 to 507"),
        (range(7, -1, -1), "ranks 7, 6, 5, 4, 3, 2, 1, 0"),
        ([n * n for n in range(40)], "ranks 0, 1, 4, 9, 16, 25, 36, 49, ... (40 ranks)"),
    ],
)
def test_ranks_are_told_as_a_few_ranges(ranks: tuple[int, ...], text: str) -> None:
    assert ranks_text(ranks) == text


def test_the_last_may_stand_behind_a_word() -> None:
    assert ranks_text((0, 1, 3), " and ") == "ranks 0, 1 and 3"
