"""The reference kernel of products of groups against PyTorch's own, which takes float32 and no double."""

import pytest
import torch

from graphguard.confirm.run.kernels import grouped_product

OFFSETS = torch.tensor([2, 2, 8], dtype=torch.int32)


@pytest.mark.parametrize(
    ("left", "right"), [((8, 8), (3, 8, 4)), ((3, 4, 8), (8, 8)), ((4, 8), (8, 8)), ((3, 4, 8), (3, 8, 4))]
)
def test_groups_of_rows_columns_and_inner_places(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = torch.randn(left), torch.randn(right)
    offsets = None if (len(left), len(right)) == (3, 3) else OFFSETS
    torch.testing.assert_close(grouped_product(a, b, offsets), torch._grouped_mm(a, b, offsets))


def test_rows_of_no_group_are_zero() -> None:
    a, b = torch.randn(10, 8), torch.randn(3, 8, 4)
    found = grouped_product(a, b, OFFSETS)
    torch.testing.assert_close(found[:8], torch._grouped_mm(a, b, OFFSETS)[:8])
    assert not found[8:].any()
