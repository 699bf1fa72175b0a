"""Where the results of a fused attention lie in memory."""

import pytest
import torch
import torch.nn.functional as F
from programs import assert_equals_eager, record


def heads_turned_back(x: torch.Tensor) -> torch.Tensor:
    q = x.view(2, 5, 3, 4).transpose(1, 2)
    return F.scaled_dot_product_attention(q, q, q).transpose(1, 2).view(2, 5, 12)


def among_chosen_rows(x: torch.Tensor) -> torch.Tensor:
    q = x[x[:, 0] > 0].view(-1, 1, 2, 4).permute(1, 2, 0, 3)
    return F.scaled_dot_product_attention(q, q, q).sum()


def test_results_lie_as_queries_do() -> None:
    assert_equals_eager(heads_turned_back, torch.randn(2, 5, 12))


@pytest.mark.parametrize("backward", [False, True])
def test_rows_whose_number_the_data_decides_may_be_attended(backward: bool) -> None:
    trace = record(among_chosen_rows, [torch.randn(6, 8)], backward=backward)
    assert trace.graph is not None
    assert trace.troubles == ()
