"""Tokens sent to the ranks of their experts and back by all-to-all, with a capacity for every source; tokens sorted by expert; with gradients."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

from .collectives import Copy, Exchange, Reduce

TOKENS, WIDTH, HIDDEN, EXPERTS, CHOSEN, CAPACITY = 12, 4, 5, 4, 2, 3
PART = {"ep": Shard(0)}


class Experts(nn.Module):
    def __init__(self, mesh: Any, wrong: str) -> None:
        super().__init__()
        self.mesh, self.wrong = mesh, wrong
        self.ranks = 1 if mesh is None else mesh.size()
        self.first = 0 if mesh is None else mesh.get_local_rank("ep") * (EXPERTS // self.ranks)
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.up = nn.Parameter(torch.empty(EXPERTS // self.ranks, WIDTH, HIDDEN))
        self.down = nn.Parameter(torch.empty(EXPERTS // self.ranks, HIDDEN, WIDTH))

    def chosen(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weight = self.router.weight
        if self.mesh is not None and self.wrong != "router":
            weight = Copy.apply(weight, self.mesh.get_group("ep"))
        return torch.topk(F.softmax(F.linear(x, weight), -1), CHOSEN, -1)

    def each(self, rows: torch.Tensor) -> torch.Tensor:
        """Every expert on its own rows: (experts, rows, width)."""
        return torch.bmm(F.gelu(torch.bmm(rows, self.up)), self.down)


class Dispatch(Experts):
    """Every shard of the tokens has its own places with every expert; the specification goes through the shards in turn."""

    def __init__(self, shards: int, mesh: Any = None, wrong: str = "") -> None:
        super().__init__(mesh, wrong)
        self.shards = shards

    def slots(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Which token goes to which place of which expert, and with what weight it comes back."""
        weights, experts = self.chosen(x)
        hot = F.one_hot(experts, EXPERTS)
        flat = hot.transpose(0, 1).reshape(-1, EXPERTS)
        place = ((flat.cumsum(0) - 1) * flat).sum(-1).reshape(CHOSEN, -1).t()
        slot = F.one_hot(place.clamp(max=CAPACITY - 1), CAPACITY).to(x.dtype) * (place < CAPACITY)[..., None]
        there = torch.einsum("tke,tkc->tec", hot.to(x.dtype), slot)
        return there, torch.einsum("tke,tkc,tk->tec", hot.to(x.dtype), slot, weights)

    def through(self, rows: torch.Tensor) -> torch.Tensor:
        if self.mesh is None:
            return self.each(rows)
        group, own = self.mesh.get_group("ep"), EXPERTS // self.ranks
        splits = [own] * self.ranks
        rows = Exchange.apply(rows, group, splits, splits).view(self.ranks, own, CAPACITY, WIDTH)
        out = self.each(rows.transpose(0, 1).reshape(own, -1, WIDTH)).view(own, self.ranks, CAPACITY, WIDTH)
        back = out if self.wrong == "order" else out.transpose(0, 1)
        return Exchange.apply(back.reshape(EXPERTS, CAPACITY, WIDTH), group, splits, splits)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = []
        for part in x.chunk(self.shards):
            there, back = self.slots(part)
            rows = self.through(torch.einsum("tec,td->ecd", there, part))
            out.append(torch.einsum("tec,ecd->td", back, rows))
        return torch.cat(out)


def dispatched(ranks: int, wrong: str = "", shards: int | None = None) -> gg.Verdict | None:
    return gg.verify(
        Dispatch(shards or ranks),
        lambda mesh: Dispatch(1, mesh, wrong),
        (gg.tensor(TOKENS, WIDTH),),
        mesh={"ep": ranks},
        in_relations=PART,
        out_relations=PART,
    ).verdict


@pytest.mark.parametrize("ranks", [2, EXPERTS])
def test_capacity_per_shard(ranks: int) -> None:
    assert dispatched(ranks) is gg.Verdict.REFINES


def test_experts_come_back_in_another_order() -> None:
    assert dispatched(2, "order") is gg.Verdict.BROKEN


def test_gradient_of_the_router_not_added_up() -> None:
    assert dispatched(EXPERTS, "router") is gg.Verdict.BROKEN


def test_capacity_of_all_tokens_together() -> None:
    assert dispatched(2, shards=1) is gg.Verdict.BROKEN


class Sorted(Experts):
    """Token copies sorted by expert; each expert's results are added where their tokens were."""

    def __init__(self, mesh: Any = None, wrong: str = "") -> None:
        super().__init__(mesh, wrong)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.mesh is not None:
            x = Copy.apply(x, self.mesh.get_group("ep"))
        weights, experts = self.chosen(x)
        order = experts.reshape(-1).argsort(stable=True)
        tokens, chosen, weight = order // CHOSEN, experts.reshape(-1)[order], weights.reshape(-1)[order]
        out = torch.zeros_like(x)
        for place in range(EXPERTS // self.ranks):
            mine = (chosen == self.first + place).to(x.dtype)
            scale = mine if self.wrong == "weights" else mine * weight
            rows = F.silu(x[tokens] @ self.up[place]) @ self.down[place]
            out = out.index_add(0, tokens, rows * scale[:, None])
        return out if self.mesh is None else Reduce.apply(out, self.mesh.get_group("ep"))


@pytest.mark.parametrize(
    ("ranks", "wrong", "wanted"),
    [(2, "", gg.Verdict.REFINES), (EXPERTS, "", gg.Verdict.REFINES), (2, "weights", gg.Verdict.BROKEN)],
)
def test_sorted_tokens(ranks: int, wrong: str, wanted: gg.Verdict) -> None:
    inputs = (gg.tensor(6, WIDTH),)
    report = gg.verify(
        Sorted(), lambda mesh: Sorted(mesh, wrong), inputs, mesh={"ep": ranks}, out_relations="replicate"
    )
    assert report.verdict is wanted


def uneven(mesh: Any, rolled: bool) -> Any:
    """Rank 0 keeps one of its rows and sends the others, rank 1 sends two of its own."""

    def run(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        group, rank, rows = mesh.get_group("ep"), mesh.get_local_rank("ep"), x.shape[0]
        sent = [[1, rows - 1], [2, rows - 2]][rank]
        received = [[1, 2], [rows - 1, rows - 2]][rank]
        out = Exchange.apply(torch.tanh(Exchange.apply(x, group, received, sent) @ weight), group, sent, received)
        return out.roll(1, 0) if rolled else out

    return run


@pytest.mark.parametrize(("rolled", "wanted"), [(False, gg.Verdict.REFINES), (True, gg.Verdict.BROKEN)])
def test_uneven_splits(rolled: bool, wanted: gg.Verdict) -> None:
    report = gg.verify(
        lambda x, weight: torch.tanh(x @ weight),
        lambda mesh: uneven(mesh, rolled),
        (gg.tensor(10, 3), gg.tensor(3, 5)),
        mesh={"ep": 2},
        in_relations=(PART, {"ep": Replicate()}),
        out_relations=PART,
    )
    assert report.verdict is wanted
