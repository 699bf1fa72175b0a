"""Experts on several ranks whose tokens are exchanged in numbers that the data decides, as they are and as training steps."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

from .collectives import Exchange

TOKENS, WIDTH, HIDDEN, EXPERTS, CHOSEN = 8, 4, 6, 4, 2
PART = {"ep": Shard(0)}


class Dense(nn.Module):
    """Every expert on every token, times its gate."""

    def __init__(self, experts: int = EXPERTS) -> None:
        super().__init__()
        self.router = nn.Parameter(torch.empty(EXPERTS, WIDTH))
        self.up = nn.Parameter(torch.empty(experts, WIDTH, HIDDEN))
        self.down = nn.Parameter(torch.empty(experts, HIDDEN, WIDTH))

    def chosen(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weights, experts = torch.topk(F.softmax(x @ self.router.t(), -1), CHOSEN, -1)
        return weights / weights.sum(-1, keepdim=True), experts

    def expert(self, place: int, rows: torch.Tensor) -> torch.Tensor:
        return F.silu(rows @ self.up[place]) @ self.down[place]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, experts = self.chosen(x)
        gates = [(weights * (experts == place)).sum(-1, keepdim=True) for place in range(EXPERTS)]
        return sum(gate * self.expert(place, x) for place, gate in enumerate(gates))


class Dispatched(Dense):
    """Token copies sorted by expert go to the ranks of their experts and come back."""

    def __init__(self, mesh: Any, wrong: str = "") -> None:
        self.group, self.ranks, self.rank = mesh.get_group("ep"), mesh.size(), mesh.get_local_rank("ep")
        self.local = EXPERTS // self.ranks
        super().__init__(self.local)
        self.wrong = wrong

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, experts = self.chosen(x)
        flat = experts.reshape(-1)
        order = flat.argsort(stable=True)
        counts = torch.bincount(flat, minlength=EXPERTS)
        arriving = torch.empty_like(counts)
        dist.all_to_all_single(arriving, counts, group=self.group)
        sent = counts.view(self.ranks, self.local).sum(1).tolist()
        received = arriving.view(self.ranks, self.local).sum(1).tolist()
        if self.wrong == "splits":
            sent, received = received, sent
        rows = Exchange.apply(x[order // CHOSEN], self.group, received, sent)
        done = Exchange.apply(self.computed(rows, arriving, flat[order], received, sent), self.group, sent, received)
        if self.wrong != "weights":
            done = done * weights.reshape(-1)[order][:, None]
        back = done if self.wrong == "order" else torch.empty_like(done).index_copy(0, order, done)
        return back.view(-1, CHOSEN, WIDTH).sum(1)

    def computed(
        self, rows: torch.Tensor, arriving: torch.Tensor, _: torch.Tensor, received: list[int], sent: list[int]
    ) -> torch.Tensor:
        """Rows sorted by expert, each expert's in one piece."""
        place = torch.arange(self.local).repeat(self.ranks).repeat_interleave(arriving)
        if self.wrong == "offset":
            place = (place + 1) % self.local
        order = place.argsort(stable=True)
        pieces = rows[order].split(torch.bincount(place, minlength=self.local).tolist())
        done = torch.cat([self.expert(index, piece) for index, piece in enumerate(pieces)])
        return done if self.wrong == "local order" else torch.empty_like(done).index_copy(0, order, done)


class Found(Dispatched):
    """Every expert looks for its rows."""

    def computed(
        self, rows: torch.Tensor, arriving: torch.Tensor, _: torch.Tensor, received: list[int], sent: list[int]
    ) -> torch.Tensor:
        place = torch.arange(self.local).repeat(self.ranks).repeat_interleave(arriving)
        out = torch.zeros_like(rows)
        for index in range(self.local):
            mine = torch.where(place == (index + (self.wrong == "offset")) % self.local)[0]
            out = out.index_add(0, mine, self.expert(index, rows[mine]))
        return out


class Named(Dispatched):
    """The numbers of the experts travel with the rows."""

    def computed(
        self, rows: torch.Tensor, arriving: torch.Tensor, names: torch.Tensor, received: list[int], sent: list[int]
    ) -> torch.Tensor:
        named = torch.empty(sum(received), dtype=torch.int64)
        dist.all_to_all_single(named, names, received, sent, group=self.group)
        first = 0 if self.wrong == "offset" else self.rank * self.local
        done = [self.expert(index, rows) * (named == first + index)[:, None] for index in range(self.local)]
        return torch.stack(done).sum(0)


class Step(nn.Module):
    """The gradients of a training step; the router's are added up, since every rank has tokens of its own."""

    def __init__(self, model: Dense, wrong: str = "") -> None:
        super().__init__()
        self.model, self.wrong = model, wrong

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        self.model(x).square().sum().backward()
        if isinstance(self.model, Dispatched) and self.wrong != "router":
            dist.all_reduce(self.model.router.grad, group=self.model.group)
        return {name: parameter.grad for name, parameter in self.model.named_parameters()}


def report(kind: type[Dispatched], wrong: str, ranks: int = 2) -> Any:
    return gg.verify(
        Dense(),
        lambda mesh: kind(mesh, wrong),
        (gg.tensor(TOKENS, WIDTH),),
        mesh={"ep": ranks},
        in_relations=(PART,),
        out_relations=PART,
        grads=False,
    )


@pytest.mark.parametrize("kind", [Dispatched, Found, Named])
def test_right(kind: type[Dispatched]) -> None:
    assert report(kind, "").verdict is gg.Verdict.REFINES


def test_one_expert_a_rank() -> None:
    assert report(Dispatched, "", EXPERTS).verdict is gg.Verdict.REFINES


@pytest.mark.parametrize(
    ("kind", "wrong", "verdict"),
    [
        *((kind, "", gg.Verdict.REFINES) for kind in (Dispatched, Found, Named)),
        (Dispatched, "router", gg.Verdict.BROKEN),
        pytest.param(Found, "offset", gg.Verdict.BROKEN, marks=pytest.mark.long),
    ],
)
def test_training_step(kind: type[Dispatched], wrong: str, verdict: gg.Verdict) -> None:
    found = gg.verify(
        Step(Dense()),
        lambda mesh: Step(kind(mesh, wrong), wrong),
        (gg.tensor(TOKENS, WIDTH),),
        mesh={"ep": 2},
        in_relations=(PART,),
        out_relations=({"ep": Replicate()}, PART, PART),
        grads=False,
    )
    assert found.verdict is verdict


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        *((Dispatched, wrong) for wrong in ("weights", "order", "offset")),
        (Found, "offset"),
        (Named, "order"),
        *(pytest.param(kind, "weights", marks=pytest.mark.long) for kind in (Found, Named)),
        pytest.param(Found, "order", marks=pytest.mark.long),
        pytest.param(Named, "offset", marks=pytest.mark.long),
        (Dispatched, "local order"),
    ],
)
def test_wrong(kind: type[Dispatched], wrong: str) -> None:
    found = report(kind, wrong)
    assert found.verdict is gg.Verdict.BROKEN
    assert found.counterexample is not None
    assert [one.code for one in found.diagnostics] == ["wrong-relation"]  # no collective without effect


def test_splits_in_each_others_place_fail_as_they_would_in_pytorch() -> None:
    found = report(Dispatched, "splits")
    assert found.verdict is gg.Verdict.UNKNOWN
    assert "no run on numbers" in found.diagnostics[0].message
    assert "split_sizes to sum exactly" in found.diagnostics[0].message
