"""Masked attention whose queries are split over ranks and whose keys and values are gathered; forward and backward."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

from .collectives import Gather

BATCH, HEADS, TOKENS, WIDTH, WINDOW = 2, 3, 8, 5, 3
Hidden = Callable[[torch.Tensor, torch.Tensor, Any], torch.Tensor]
Weights = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def window(i: torch.Tensor, j: torch.Tensor, _: Any) -> torch.Tensor:
    return (j > i) | (i - j >= WINDOW)


def wider_window(i: torch.Tensor, j: torch.Tensor, _: Any) -> torch.Tensor:
    return (j > i) | (i - j > WINDOW)


def documents(i: torch.Tensor, j: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    return ((j > i) | (ids[:, i[:, 0], None] != ids[:, None, j[0]]))[:, None]


def padding(i: torch.Tensor, j: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return (j > i) | (j >= lengths[:, None, None, None])


def filled(scores: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    return scores.masked_fill(hidden, float("-inf")).softmax(-1)


class Attention(nn.Module):
    def __init__(self, hidden: Hidden, weights: Weights | None, mesh: Any = None, shifted: bool = True) -> None:
        super().__init__()
        self.hidden, self.weights, self.mesh, self.shifted = hidden, weights, mesh, shifted

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, marks: torch.Tensor) -> torch.Tensor:
        first = 0
        if self.mesh is not None:
            group = self.mesh.get_group("cp")
            k, v = Gather.apply(k, group, 2), Gather.apply(v, group, 2)
            first = self.mesh.get_local_rank("cp") * q.shape[2] if self.shifted else 0
        rows = torch.arange(q.shape[2])[:, None] + first
        hidden = self.hidden(rows, torch.arange(TOKENS)[None, :], marks)
        if self.weights is None:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=~hidden)
        return self.weights(q @ k.transpose(-1, -2) * WIDTH**-0.5, hidden) @ v


def verdict(spec: nn.Module, impl: Callable[[Any], nn.Module], ranks: int, marks: Any) -> gg.Verdict | None:
    part = {"cp": Shard(2)}
    return gg.verify(
        spec,
        impl,
        (*(gg.tensor(BATCH, HEADS, TOKENS, WIDTH) for _ in range(3)), marks),
        mesh={"cp": ranks},
        in_relations=(part, part, part, {"cp": Replicate()}),
        out_relations=part,
    ).verdict


IDS = gg.tensor(BATCH, TOKENS, dtype=torch.long, low=0, high=3)
LENGTHS = gg.tensor(BATCH, dtype=torch.long, low=1, high=TOKENS + 1)


@pytest.mark.parametrize(
    ("hidden", "marks", "spec", "impl", "ranks"),
    [
        (window, IDS, filled, None, 2),
        (window, IDS, filled, filled, 2),
        (documents, IDS, filled, filled, 2),
        (padding, LENGTHS, filled, None, 4),
    ],
)
def test_masks(hidden: Hidden, marks: Any, spec: Weights | None, impl: Weights | None, ranks: int) -> None:
    right = verdict(Attention(hidden, spec), lambda mesh: Attention(hidden, impl, mesh), ranks, marks)
    assert right is gg.Verdict.REFINES


@pytest.mark.parametrize(("hidden", "shifted"), [(window, False), (wider_window, True)])
def test_wrong_masks(hidden: Hidden, shifted: bool) -> None:
    wrong = verdict(Attention(window, filled), lambda mesh: Attention(hidden, filled, mesh, shifted), 2, IDS)
    assert wrong is gg.Verdict.BROKEN
