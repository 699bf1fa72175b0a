"""Statistics over ranks: batch norm synchronised by hand, mean and variance merged pair by pair, rows of neighbours for a convolution; gradients where asked."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

from .collectives import Copy, Gather, Total

CHANNELS = 3


class BatchNorm(nn.Module):
    def __init__(self, mesh: Any = None, how: str = "") -> None:
        super().__init__()
        self.norm, self.how = nn.BatchNorm2d(CHANNELS), how
        self.group, self.ranks = (None, 1) if mesh is None else (mesh.get_group("dp"), mesh.size())

    def moments(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean = Total.apply(x.mean((0, 2, 3)), self.group) / self.ranks
        if self.how == "two passes":
            return mean, Total.apply((x - mean[:, None, None]).pow(2).mean((0, 2, 3)), self.group) / self.ranks
        if self.how == "squares":
            return mean, Total.apply((x * x).mean((0, 2, 3)), self.group) / self.ranks - mean * mean
        own = Gather.apply(x.mean((0, 2, 3))[None], self.group, 0)
        variances = Gather.apply(x.var((0, 2, 3), unbiased=False)[None], self.group, 0)
        between = 0 if self.how == "mean of variances" else (own - mean) ** 2
        return mean, (variances + between).mean(0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.group is None:
            return self.norm(x)
        mean, variance = self.moments(x)
        count = self.ranks * x.numel() // CHANNELS
        with torch.no_grad():
            self.norm.running_mean.mul_(0.9).add_(0.1 * mean)
            self.norm.running_var.mul_(0.9).add_(0.1 * variance * (count / (count - 1)))
            self.norm.num_batches_tracked += 1
        weight, bias = (Copy.apply(p, self.group)[:, None, None] for p in (self.norm.weight, self.norm.bias))
        return (x - mean[:, None, None]) * torch.rsqrt(variance + self.norm.eps)[:, None, None] * weight + bias


def normalised(how: str, ranks: int, grads: bool = True) -> gg.Verdict | None:
    part = {"dp": Shard(0)}
    return gg.verify(
        BatchNorm(),
        lambda mesh: BatchNorm(mesh, how),
        (gg.tensor(4, CHANNELS, 2, 2),),
        mesh={"dp": ranks},
        in_relations=part,
        out_relations=part,
        grads=grads,
    ).verdict


@pytest.mark.parametrize("ranks", [2, 4])
def test_batch_norm(ranks: int) -> None:
    assert normalised("squares", ranks) is gg.Verdict.REFINES


@pytest.mark.parametrize("how", ["two passes", "gathered"])
def test_batch_norm_in_other_ways(how: str) -> None:
    assert normalised(how, 2) is gg.Verdict.REFINES


def test_mean_of_variances() -> None:
    assert normalised("mean of variances", 2) is gg.Verdict.BROKEN


class Convolved(BatchNorm):
    """A padded convolution, which is in nine pieces, before the norm, and another one behind it."""

    def __init__(self, mesh: Any = None, how: str = "") -> None:
        super().__init__(mesh, how)
        self.before = nn.Conv2d(2, CHANNELS, 3, padding=1, bias=False)
        self.behind = nn.Conv2d(CHANNELS, 2, 3, padding=1, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.group is None:
            return self.behind(self.norm(self.before(x)).relu())
        before, behind, bias = (Copy.apply(p, self.group) for p in (self.before.weight, *self.behind.parameters()))
        y = F.conv2d(x, before, padding=1)
        return F.conv2d(super().forward(y).relu(), behind, bias, padding=1, stride=2)


@pytest.mark.parametrize(
    ("how", "verdict"),
    [
        ("gathered", gg.Verdict.REFINES),
        ("two passes", gg.Verdict.REFINES),
        ("mean of variances", gg.Verdict.BROKEN),
    ],
)
def test_batch_norm_between_convolutions(how: str, verdict: gg.Verdict) -> None:
    """The convolution is in nine pieces, whose mean in a square has too many terms: what is proved of any tensor in its place holds for it."""
    part = {"dp": Shard(0)}
    inputs = (gg.tensor(4, 2, 5, 6),)
    found = gg.verify(
        Convolved(), lambda mesh: Convolved(mesh, how), inputs, mesh={"dp": 2}, in_relations=part, out_relations=part
    )
    assert found.verdict is verdict


class Halo(torch.autograd.Function):
    """A row of each neighbour above and below; gradients go back to where the rows came from."""

    @staticmethod
    def swapped(up: torch.Tensor, down: torch.Tensor, group: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """What the ranks above and below sent down and up; zeros at the ends."""
        rank, last = dist.get_rank(group), dist.get_world_size(group) - 1
        above, below = torch.zeros_like(down), torch.zeros_like(up)
        calls = []
        for there, sent, received in ((rank - 1, up, above), (rank + 1, down, below)):
            if 0 <= there <= last:
                calls.append(dist.P2POp(dist.isend, sent.contiguous(), there, group))
                calls.append(dist.P2POp(dist.irecv, received, there, group))
        for work in dist.batch_isend_irecv(calls):
            work.wait()
        return above, below

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any, wrong: str) -> torch.Tensor:
        ctx.group, ctx.wrong = group, wrong
        above, below = Halo.swapped(x[:, :, :1], x[:, :, -1:], group)
        return torch.cat([below, x, above] if wrong == "side" else [above, x, below], 2)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        above, below = Halo.swapped(gradient[:, :, :1], gradient[:, :, -1:], ctx.group)
        own = gradient[:, :, 1:-1].clone()
        if ctx.wrong != "gradient":
            own[:, :, :1] += above
            own[:, :, -1:] += below
        return own, None, None


class Convolution(nn.Module):
    def __init__(self, mesh: Any = None, wrong: str = "") -> None:
        super().__init__()
        self.group, self.wrong = None if mesh is None else mesh.get_group("rows"), wrong
        self.layer = nn.Conv2d(2, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.group is None:
            return F.relu(self.layer(x))
        weight, bias = (Copy.apply(p, self.group) for p in (self.layer.weight, self.layer.bias))
        return F.relu(F.conv2d(Halo.apply(x, self.group, self.wrong), weight, bias, padding=(0, 1)))


def convolved(wrong: str) -> gg.Verdict | None:
    part = {"rows": Shard(2)}
    return gg.verify(
        Convolution(),
        lambda mesh: Convolution(mesh, wrong),
        (gg.tensor(1, 2, 6, 5),),
        mesh={"rows": 2},
        in_relations=part,
        out_relations=part,
    ).verdict


@pytest.mark.parametrize("wrong", ["side", "gradient"])
def test_wrong_rows_of_neighbours(wrong: str) -> None:
    assert convolved(wrong) is gg.Verdict.BROKEN


def test_rows_of_neighbours() -> None:
    """Not proved: the rows that windows reach are no windows of one sum where some are padding."""
    assert convolved("") is not gg.Verdict.BROKEN


def gathered(x: torch.Tensor) -> list[torch.Tensor]:
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x)
    return parts


def merged(wrong: bool) -> Any:
    """Layer norm over a dim that is cut, whose moments are merged as Chan, Golub and LeVeque do."""

    def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        own = x.mean(-1)
        rows = zip(
            gathered(own),
            gathered((x - own[..., None]).pow(2).sum(-1)),
            gathered(torch.tensor(float(x.shape[-1]))),
            strict=True,
        )
        mean, squares, count = next(rows)
        for other, more, size in rows:
            apart, total = other - mean, count + size
            mean = mean + apart * size / total
            squares = squares + more + (0 if wrong else apart * apart * count * size / total)
            count = total
        return (x - mean[..., None]) * torch.rsqrt(squares / count + 1e-5)[..., None] * weight + bias

    return run


def cut(inputs: Any, mesh: Any) -> Any:
    part = slice(0, 5) if mesh.get_local_rank("tp") == 0 else slice(5, 8)
    return tuple(x[..., part] for x in inputs)


@pytest.mark.parametrize(("wrong", "wanted"), [(False, gg.Verdict.REFINES), (True, gg.Verdict.BROKEN)])
def test_merged_moments_of_uneven_parts(wrong: bool, wanted: gg.Verdict) -> None:
    report = gg.verify(
        lambda x, weight, bias: F.layer_norm(x, (8,), weight, bias),
        lambda mesh: merged(wrong),
        (gg.tensor(3, 8), gg.tensor(8), gg.tensor(8)),
        mesh={"tp": 2},
        shard_inputs=cut,
    )
    assert report.verdict is wanted
