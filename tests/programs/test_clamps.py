"""Clamps, in PyTorch's call and by hand, over parts and wholes."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.distributed.tensor import Shard

import graphguard as gg

Program = Callable[[torch.Tensor], torch.Tensor]


def verdict(spec: Program, impl: Program) -> gg.Verdict | None:
    return gg.verify(spec, lambda mesh: impl, (gg.tensor(8, 3),), mesh={"dp": 2}, in_relations={"dp": Shard(0)}).verdict


def at_least(x: torch.Tensor, number: float) -> torch.Tensor:
    return torch.maximum(x, torch.full_like(x, number))


def at_most(x: torch.Tensor, number: float) -> torch.Tensor:
    return torch.minimum(x, torch.full_like(x, number))


def clipped(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(-0.4, 0.6)


RIGHT: dict[str, tuple[Program, Program]] = {
    "the other order": (clipped, lambda x: at_least(at_most(x, 0.6), -0.4)),
    "of the negative": (clipped, lambda x: -at_least(at_most(-x, 0.4), -0.6)),
    "of a multiple": (lambda x: (2 * x).clamp(-0.4, 0.6), lambda x: 2 * at_least(at_most(x, 0.3), -0.2)),
    "by comparisons": (clipped, lambda x: torch.where(x < 0.6, x, 0.6).clamp(min=-0.4)),
    "twice": (clipped, lambda x: x.clamp(-1, 0.6).clamp(-0.4, 2)),
    "relu6": (F.relu6, lambda x: at_most(x, 6).relu()),
    "hardtanh": (F.hardtanh, lambda x: at_least(at_most(x, 1), -1)),
    "of a difference": (lambda x: (x - x.flip(1)).clamp(-1, 2), lambda x: -at_least(at_most(x.flip(1) - x, 1), -2)),
    "nothing to clamp": (lambda x: x.sigmoid().clamp(0, 1), torch.sigmoid),
}
WRONG: dict[str, tuple[Program, Program]] = {
    "ends exchanged": (clipped, lambda x: at_least(at_most(x, -0.4), 0.6)),
    "another end": (clipped, lambda x: at_least(at_most(x, 0.6), -0.5)),
    "the negative's ends": (clipped, lambda x: -at_least(at_most(-x, 0.6), -0.4)),
    "too early": (clipped, lambda x: at_least(at_most(x, 0.6), -0.4) + at_most(x, -0.4) - at_most(x, -0.5)),
    "something to clamp": (lambda x: x.sigmoid().clamp(0.5, 1), torch.sigmoid),
}


@pytest.mark.parametrize(("spec", "impl"), RIGHT.values(), ids=RIGHT)
def test_clamps(spec: Program, impl: Program) -> None:
    assert verdict(spec, impl) is gg.Verdict.REFINES


@pytest.mark.parametrize(("spec", "impl"), WRONG.values(), ids=WRONG)
def test_wrong_clamps(spec: Program, impl: Program) -> None:
    assert verdict(spec, impl) is gg.Verdict.BROKEN
