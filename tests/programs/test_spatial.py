"""Images whose rows are split: borders come from the neighbours, and the norm of a group is that of the whole image."""

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import Shard

import graphguard as gg

Block = Callable[..., torch.Tensor]
GROUPS = 2


def total(x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    dist.all_reduce(x)
    return x


def with_borders(x: torch.Tensor, above: int, below: int) -> torch.Tensor:
    """The last rows of the rank before, and the first of the rank after; zeros at the edges of the image."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    upper, lower = torch.zeros_like(x[:, :, :above]), torch.zeros_like(x[:, :, :below])
    ops = []
    if rank < ranks - 1:
        ops.append(dist.P2POp(dist.isend, x[:, :, -above:].contiguous(), rank + 1))
    if rank > 0:
        ops.append(dist.P2POp(dist.irecv, upper, rank - 1))
    if rank > 0 and below:
        ops.append(dist.P2POp(dist.isend, x[:, :, :below].contiguous(), rank - 1))
    if rank < ranks - 1 and below:
        ops.append(dist.P2POp(dist.irecv, lower, rank + 1))
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return torch.cat([upper, x, lower], 2)


def block(x: torch.Tensor, first: torch.Tensor, second: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    x = F.silu(F.group_norm(F.conv2d(x, first, padding=1), GROUPS, weight))
    return F.conv2d(x, second, stride=2, padding=1)


def block_on_rows(wrong: str) -> Block:
    def run(x: torch.Tensor, first: torch.Tensor, second: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ranks = dist.get_world_size()
        y = F.conv2d(with_borders(x, 1, 1), first, padding=(0, 1)).unflatten(1, (GROUPS, -1))
        mean = total(y.mean((2, 3, 4), keepdim=True)) / ranks
        from_mean = y - (y.mean((2, 3, 4), keepdim=True) if wrong == "own mean" else mean)
        variance = total(from_mean.square().mean((2, 3, 4), keepdim=True)) / ranks
        y = F.silu(((y - mean) * torch.rsqrt(variance + 1e-5)).flatten(1, 2) * weight[:, None, None])
        y = F.pad(y, (0, 0, 1, 0)) if wrong == "no border" else with_borders(y, 1, 0)
        return F.conv2d(y, second, stride=2, padding=(0, 1))

    return run


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("wrong", ["", "own mean", "no border"])
def test_rows_of_images(ranks: int, wrong: str) -> None:
    rows = {"sp": Shard(2)}
    report = gg.verify(
        block,
        lambda mesh: block_on_rows(wrong),
        inputs=(gg.tensor(2, 3, 12, 5), gg.tensor(4, 3, 3, 3), gg.tensor(2, 4, 3, 3), gg.tensor(4)),
        mesh={"sp": ranks},
        in_relations=(rows, {}, {}, {}),
        out_relations=rows,
    )
    assert report.verdict is (gg.Verdict.BROKEN if wrong else gg.Verdict.REFINES), report.diagnostics
