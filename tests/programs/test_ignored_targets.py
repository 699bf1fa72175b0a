"""Cross entropy over a vocabulary that is split over ranks, some targets ignored, some columns padding; with gradients."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

from .collectives import Copy, Reduce

VOCABULARY, WIDTH, IGNORED = 10, 4, -100
TARGETS = torch.tensor([3, IGNORED, 0, 9, 5, IGNORED, 2])


class Loss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.head(x), target, ignore_index=IGNORED)


class ParallelLoss(nn.Module):
    def __init__(self, mesh: Any, padding: int, wrong: str) -> None:
        super().__init__()
        self.group, self.wrong = mesh.get_group("tp"), wrong
        self.count = (VOCABULARY + padding) // mesh.size()
        self.low = mesh.get_local_rank("tp") * self.count
        self.head = nn.Linear(WIDTH, self.count, bias=False)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        logits = self.head(Copy.apply(x, self.group))
        columns = torch.arange(self.count) + self.low
        return logits if self.wrong == "padding" else logits.masked_fill(columns >= VOCABULARY, float("-inf"))

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        logits = self.logits(x)
        largest = logits.detach().amax(-1)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=self.group)
        total = Reduce.apply((logits - largest[:, None]).exp().sum(-1), self.group)
        outside = (target < self.low) | (target >= self.low + self.count)
        place = (target - self.low).masked_fill(outside, 0)
        hit = (logits.gather(1, place[:, None])[:, 0] - largest).masked_fill(outside, 0.0)
        losses = total.log() - Reduce.apply(hit, self.group)
        valid = target != IGNORED
        if self.wrong == "ignored":
            return losses.mean()
        losses = torch.where(valid, losses, 0.0)
        return losses.sum() / (len(target) if self.wrong == "count" else valid.sum())


def padded(state: Any, impl: Any, mesh: Any) -> None:
    """Rows of zeros after the last word."""
    weight = torch.cat([state["head.weight"], torch.zeros(impl.count * mesh.size() - VOCABULARY, WIDTH)])
    impl.head.weight.data.copy_(weight[impl.low : impl.low + impl.count])


def verdict(target: Any, ranks: int, padding: int = 0, wrong: str = "") -> gg.Verdict | None:
    inputs = (gg.tensor(len(TARGETS), WIDTH), target)
    mesh = {"tp": ranks}
    return gg.verify(Loss(), lambda m: ParallelLoss(m, padding, wrong), inputs, mesh=mesh, load=padded).verdict


ANY = gg.tensor(len(TARGETS), dtype=torch.long)


@pytest.mark.parametrize(
    ("target", "ranks", "padding"), [(gg.constant(TARGETS), 2, 0), (gg.constant(TARGETS), 4, 2), (ANY, 2, 0)]
)
def test_losses(target: Any, ranks: int, padding: int) -> None:
    assert verdict(target, ranks, padding) is gg.Verdict.REFINES


def test_any_targets_beside_padding() -> None:
    """Not proved: a look-up among columns of which some are minus infinity stays closed."""
    assert verdict(ANY, 4, 2) is not gg.Verdict.BROKEN


@pytest.mark.parametrize(
    ("target", "ranks", "padding", "wrong"),
    [
        (ANY, 2, 0, "ignored"),
        (gg.constant(TARGETS), 2, 0, "count"),
        (gg.constant(TARGETS), 4, 2, "padding"),
        (ANY, 4, 2, "padding"),
    ],
)
def test_wrong_losses(target: Any, ranks: int, padding: int, wrong: str) -> None:
    assert verdict(target, ranks, padding, wrong) is gg.Verdict.BROKEN
