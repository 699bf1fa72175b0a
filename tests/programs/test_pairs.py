"""Pairs of positions, as protein models have them: rows of positions on the ranks, padded to as many on each, and gathered beside each other (dynamic axial parallelism)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import Shard

import graphguard as gg

ROWS, POSITIONS, WIDTH, NARROW = 6, 3, 5, 2
Gather = Callable[[torch.Tensor], torch.Tensor]


def own(x: torch.Tensor, dim: int) -> torch.Tensor:
    """The rank's part of a tensor."""
    return x.chunk(dist.get_world_size(), dim)[dist.get_rank()]


def gathered(x: torch.Tensor) -> torch.Tensor:
    """All positions, gathered along dim 0 into one buffer and then put into order."""
    ranks, (rows, count, width) = dist.get_world_size(), x.shape
    buffer = x.new_empty(rows * ranks, count, width)
    dist.all_gather(list(buffer.chunk(ranks)), x)
    return buffer.view(ranks, rows, count, width).transpose(0, 1).reshape(rows, ranks * count, width)


def in_other_order(x: torch.Tensor) -> torch.Tensor:
    """The same with the ranks' positions taken by turns."""
    ranks, (rows, count, width) = dist.get_world_size(), x.shape
    buffer = x.new_empty(rows * ranks, count, width)
    dist.all_gather(list(buffer.chunk(ranks)), x)
    return buffer.view(ranks, rows, count, width).permute(1, 2, 0, 3).reshape(rows, ranks * count, width)


def outer_product_mean(
    part: Callable[[torch.Tensor, int], torch.Tensor], gather: Gather
) -> Callable[..., torch.Tensor]:
    def program(m: torch.Tensor, mask: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        m, mask = F.pad(m, (0, 0, 0, 1)), F.pad(mask, (0, 1)).unsqueeze(-1)
        line = F.layer_norm(part(m, 1), (WIDTH,))
        theirs = mask * gather(F.linear(line, right))
        mine = part(mask, 1) * F.linear(line, left)
        counted = torch.einsum("sic,sjc->ijc", part(mask, 1), mask) + 1e-3
        return torch.einsum("sid,sje->ijde", mine, theirs).flatten(2) / counted

    return program


def verdict(gather: Gather) -> gg.Verdict | None:
    inputs = (
        gg.tensor(ROWS, POSITIONS, WIDTH),
        gg.tensor(ROWS, POSITIONS),
        gg.tensor(NARROW, WIDTH),
        gg.tensor(NARROW, WIDTH),
    )
    spec, impl = outer_product_mean(lambda x, _: x, lambda x: x), outer_product_mean(own, gather)
    return gg.verify(spec, lambda _: impl, inputs, mesh={"dap": 2}, out_relations={"dap": Shard(0)}).verdict


@pytest.mark.parametrize("gather", [gathered, in_other_order])
def test_outer_products_of_padded_positions(gather: Gather) -> None:
    """At the last position a product of two norms is a square, and where one of two like factors stands still the other may be named first."""
    expected = gg.Verdict.REFINES if gather is gathered else gg.Verdict.BROKEN
    assert verdict(gather) is expected
