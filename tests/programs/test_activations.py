"""Activations that one program calls and the other writes out, in layers that are divided over ranks, with gradients; losses of the same kind."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

from .collectives import Copy, Reduce

WIDTH, HIDDEN = 6, 8
Activation = Callable[[torch.Tensor], torch.Tensor]


def tangent(x: torch.Tensor) -> torch.Tensor:
    return (x.exp() - (-x).exp()) / (x.exp() + (-x).exp())


def gelu(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + tangent(0.7978845608028654 * (x + 0.044715 * x**3)))


SAME: dict[str, tuple[Activation, Activation]] = {
    "silu": (F.silu, lambda x: x / (1 + torch.exp(-x))),
    "quick gelu": (lambda x: x * torch.sigmoid(1.702 * x), lambda x: x / (1 + torch.exp(-1.702 * x))),
    "sigmoid": (torch.sigmoid, lambda x: 1 / (1 + torch.exp(-x))),
    "softplus": (F.softplus, lambda x: torch.log(1 + x.exp())),
    "tanh": (torch.tanh, lambda x: 2 * torch.sigmoid(2 * x) - 1),
    "gelu": (lambda x: F.gelu(x, approximate="tanh"), gelu),
    "sigmoid of the opposite": (lambda x: torch.sigmoid(-x), lambda x: 1 - torch.sigmoid(x)),
    "logarithm of a sigmoid": (F.logsigmoid, lambda x: x - F.softplus(x)),
    "mish": (F.mish, lambda x: x * torch.tanh(torch.log1p(x.exp()))),
}
OTHER: dict[str, tuple[Activation, Activation]] = {
    "silu of the opposite": (F.silu, lambda x: x / (1 + torch.exp(x))),
    "sigmoid with two": (torch.sigmoid, lambda x: 1 / (2 + torch.exp(-x))),
    "opposite of a sigmoid": (lambda x: torch.sigmoid(-x), lambda x: -torch.sigmoid(x)),
    "tanh of half": (torch.tanh, lambda x: 2 * torch.sigmoid(x) - 1),
}


class Gated(nn.Module):
    """A gated layer; with a group, this rank's part of it."""

    def __init__(self, activation: Activation, group: Any = None) -> None:
        super().__init__()
        hidden = HIDDEN if group is None else HIDDEN // dist.get_world_size(group)
        self.gate = nn.Linear(WIDTH, hidden, bias=False)
        self.up = nn.Linear(WIDTH, hidden, bias=False)
        self.down = nn.Linear(hidden, WIDTH, bias=False)
        self.activation, self.group = activation, group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x if self.group is None else Copy.apply(x, self.group)
        out = self.down(self.activation(self.gate(x)) * self.up(x))
        return out if self.group is None else Reduce.apply(out, self.group)


def verdict(spec: Activation, impl: Activation) -> gg.Verdict | None:
    return gg.verify(
        Gated(spec),
        lambda mesh: Gated(impl, mesh.get_group("tp")),
        (gg.tensor(3, WIDTH),),
        mesh={"tp": 2},
        out_relations="replicate",
    ).verdict


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", SAME)
def test_written_out(name: str, turned: bool) -> None:
    """The threshold of ``softplus``, by which it differs from its definition by 2e-9, refutes nothing."""
    spec, impl = SAME[name][::-1] if turned else SAME[name]
    assert verdict(spec, impl) is gg.Verdict.REFINES


@pytest.mark.parametrize("name", OTHER)
def test_another_function(name: str) -> None:
    assert verdict(*OTHER[name]) is gg.Verdict.BROKEN


def preferred(chosen: torch.Tensor, rejected: torch.Tensor) -> torch.Tensor:
    return -F.logsigmoid(0.1 * (chosen - rejected)).mean()


@pytest.mark.parametrize(("sign", "wanted"), [(-1, gg.Verdict.REFINES), (1, gg.Verdict.BROKEN)])
def test_a_preference_loss(sign: int, wanted: gg.Verdict) -> None:
    def impl(_: Any) -> Callable[..., torch.Tensor]:
        def run(chosen: torch.Tensor, rejected: torch.Tensor) -> torch.Tensor:
            loss = torch.log(1 + torch.exp(sign * 0.1 * (chosen - rejected))).mean()
            dist.all_reduce(loss, op=dist.ReduceOp.AVG)
            return loss

        return run

    rows = {"dp": Shard(0)}
    found = gg.verify(preferred, impl, (gg.tensor(6), gg.tensor(6)), mesh={"dp": 2}, in_relations=(rows, rows))
    assert found.verdict is wanted


Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
LOSSES: dict[str, tuple[Loss, gg.Verdict]] = {
    "terms": (lambda x, y: F.softplus(x) - x * y, gg.Verdict.REFINES),
    "falling": (lambda x, y: F.softplus(-x) + x * (1 - y), gg.Verdict.REFINES),
    "probabilities": (
        lambda x, y: F.binary_cross_entropy(torch.sigmoid(x), y, reduction="none"),
        gg.Verdict.REFINES,
    ),
    "falling with the targets": (lambda x, y: F.softplus(-x) - x * y, gg.Verdict.BROKEN),
    "turned targets": (lambda x, y: F.softplus(x) - x * (1 - y), gg.Verdict.BROKEN),
}


@pytest.mark.parametrize("name", LOSSES)
def test_cross_entropy_of_two_classes(name: str) -> None:
    loss, wanted = LOSSES[name]

    def impl(_: Any) -> Callable[..., torch.Tensor]:
        def run(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            out = loss(x, y).mean()
            dist.all_reduce(out, op=dist.ReduceOp.AVG)
            return out

        return run

    rows = {"dp": Shard(0)}
    found = gg.verify(
        F.binary_cross_entropy_with_logits,
        impl,
        (gg.tensor(6), gg.tensor(6)),
        mesh={"dp": 2},
        in_relations=(rows, rows),
    )
    assert found.verdict is wanted
