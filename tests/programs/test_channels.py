"""Convolutional nets whose channels are split over ranks, forward and backward."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import graphguard as gg

from .collectives import Copy, Reduce

CHANNELS = 8
Middle = Callable[[int, int], nn.Module]


class Net(nn.Module):
    """Two convolutions; the channels between them are split, with whatever acts on them one by one."""

    def __init__(self, middle: Middle, mesh: Any = None, copied: bool = True) -> None:
        super().__init__()
        self.group = None if mesh is None else mesh.get_group("tp")
        ranks = 1 if mesh is None else mesh.size()
        self.copied = copied
        self.first = nn.Conv2d(3, CHANNELS // ranks, 3, padding=1)
        self.middle = middle(CHANNELS // ranks, ranks)
        self.second = nn.Conv2d(CHANNELS // ranks, 4, 3, padding=1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.group is not None and self.copied:
            x = Copy.apply(x, self.group)
        y = self.second(F.relu(self.middle(self.first(x))))
        return y if self.group is None else Reduce.apply(y, self.group)


MIDDLES: dict[str, Middle] = {
    "nothing": lambda channels, ranks: nn.Identity(),
    "batch norm": lambda channels, ranks: nn.BatchNorm2d(channels),
    "group norm": lambda channels, ranks: nn.GroupNorm(4 // ranks, channels),
    "depthwise": lambda channels, ranks: nn.Conv2d(channels, channels, 3, padding=1, groups=channels),
    "pooling": lambda channels, ranks: nn.MaxPool2d(2),
}


def verdict(middle: Middle, ranks: int, copied: bool = True) -> gg.Verdict | None:
    inputs = (gg.tensor(2, 3, 6, 6),)
    return gg.verify(
        Net(middle), lambda mesh: Net(middle, mesh, copied), inputs, mesh={"tp": ranks}, out_relations="replicate"
    ).verdict


@pytest.mark.parametrize("name", MIDDLES)
def test_split_channels(name: str) -> None:
    assert verdict(MIDDLES[name], 2) is gg.Verdict.REFINES


@pytest.mark.parametrize(("name", "ranks"), [("nothing", CHANNELS), ("group norm", 4)])
def test_one_channel_or_group_a_rank(name: str, ranks: int) -> None:
    assert verdict(MIDDLES[name], ranks) is gg.Verdict.REFINES


def test_gradient_of_the_input_not_added_up() -> None:
    assert verdict(MIDDLES["nothing"], 2, copied=False) is gg.Verdict.BROKEN
