"""Dispatchers in megatron-core's manner, in plain PyTorch: tokens permuted by a routing map, gathered or exchanged, weighed by their probabilities and put back.

Forward and every gradient, one and two experts on a rank, counts that the router decides; what is wrong is never proved.
"""

from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.tensor import Shard

import graphguard as gg

from .collectives import Gather, Scatter

TOKENS, WIDTH, HIDDEN, EXPERTS, CHOSEN = 8, 4, 6, 4, 2
EP = {"ep": Shard(0)}
X = gg.tensor(TOKENS, WIDTH)


class Mixture(nn.Module):
    """Every expert acts on all tokens, weighed by what the router gives it."""

    def __init__(self, experts: int = EXPERTS) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.up = nn.Parameter(torch.empty(experts, WIDTH, HIDDEN))
        self.down = nn.Parameter(torch.empty(experts, HIDDEN, WIDTH))

    def routed(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Probabilities and the routing map, both (tokens, experts)."""
        scores, chosen = torch.topk(self.router(x), CHOSEN, -1)
        weights = F.softmax(scores, -1)
        probs = torch.zeros(len(x), EXPERTS).scatter(1, chosen, weights)
        return probs, torch.zeros(len(x), EXPERTS).int().scatter(1, chosen, 1).bool()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        probs, routing = self.routed(x)
        out = torch.zeros_like(x)
        for expert, (up, down) in enumerate(zip(self.up, self.down, strict=True)):
            gate = (probs[:, expert] * routing[:, expert])[:, None]
            out = out + gate * (F.silu(x @ up) @ down)
        return out


def permute(
    x: torch.Tensor, routing: torch.Tensor, probs: torch.Tensor, how: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows of tokens, those of the first expert first; their probabilities, and the tokens they are of."""
    (tokens, experts), across = routing.shape, routing.T.contiguous()
    places = torch.arange(tokens).unsqueeze(0).expand(experts, -1).masked_select(across)
    weights = probs.masked_select(routing) if how == "probabilities by token" else probs.T.masked_select(across)
    return x.index_select(0, places), weights, places


def unpermute(rows: torch.Tensor, places: torch.Tensor, x: torch.Tensor, how: str) -> torch.Tensor:
    """Rows added to the tokens that they are of."""
    if how == "other tokens":
        places = len(x) - 1 - places
    return torch.zeros_like(x).scatter_add(0, places.unsqueeze(1).expand(-1, x.shape[1]), rows)


class Parallel(Mixture):
    """A part of the experts; the router's gradient is added up as a finaliser does it."""

    def __init__(self, mesh: Any, how: str = "") -> None:
        self.ranks = mesh.size()
        self.local = EXPERTS // self.ranks
        super().__init__(self.local)
        self.group, self.rank, self.how = mesh.get_group("ep"), mesh.get_local_rank("ep"), how
        if how != "router not reduced":
            self.router.weight.register_hook(self.total)

    def total(self, grad: torch.Tensor) -> torch.Tensor:
        grad = grad.clone()
        dist.all_reduce(grad, group=self.group)
        return grad

    @property
    def mine(self) -> slice:
        rank = (self.rank + 1) % self.ranks if self.how == "experts of the next rank" else self.rank
        return slice(rank * self.local, (rank + 1) * self.local)

    def experts(self, rows: torch.Tensor, weights: torch.Tensor, counts: list[int]) -> torch.Tensor:
        done = []
        if self.how == "counts the other way round":
            counts = counts[::-1]
        for expert, (part, weight) in enumerate(zip(rows.split(counts), weights.split(counts), strict=True)):
            hidden = F.silu(part @ self.up[expert])
            if self.how != "no probabilities":
                hidden = hidden * weight.unsqueeze(-1)
            done.append(hidden @ self.down[expert])
        return torch.cat(done)

    def limited(self, routing: torch.Tensor) -> torch.Tensor:
        """What a capacity leaves of the routing map."""
        return routing & (routing.cumsum(0) <= 1) if self.how == "capacity" else routing


class Gathered(Parallel):
    """Every rank has all tokens, and adds up what its experts make of theirs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        probs, routing = self.routed(x)
        tokens = Gather.apply(x, self.group, 0)
        probs = Gather.apply(probs, self.group, 0)
        wide = torch.empty(len(tokens), EXPERTS, dtype=torch.bool)
        dist.all_gather_into_tensor(wide, self.limited(routing), group=self.group)
        wide, probs = wide[:, self.mine].contiguous(), probs[:, self.mine].contiguous()
        rows, weights, places = permute(tokens, wide, probs, self.how)
        done = self.experts(rows, weights, wide.sum(0).tolist())
        return Scatter.apply(unpermute(done, places, tokens, self.how), self.group, 0)


class Exchanged(Parallel):
    """Tokens go to the ranks of their experts, and come back."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        probs, routing = self.routed(x)
        routing = self.limited(routing)
        counts = routing.sum(0)
        everyone = torch.empty(self.ranks, EXPERTS, dtype=counts.dtype)
        dist.all_gather_into_tensor(everyone, counts, group=self.group)
        arriving = everyone[:, self.mine].contiguous()
        sent, received = counts.reshape(self.ranks, self.local).sum(1).tolist(), arriving.sum(1).tolist()
        rows, weights, places = permute(x, routing, probs, self.how)
        rows = all_to_all_single_autograd(rows, received, sent, self.group)
        weights = all_to_all_single_autograd(weights, received, sent, self.group)
        sizes, order = arriving.ravel().tolist(), self.by_expert(self.ranks, self.local)
        if self.how == "chunks as they came":
            order = sorted(order)
        rows, weights = reordered(rows, sizes, order), reordered(weights, sizes, order)
        done = self.experts(rows, weights, arriving.sum(0).tolist())
        if self.how != "chunks not put back":
            done = reordered(done, [sizes[chunk] for chunk in order], self.by_expert(self.local, self.ranks))
        done = all_to_all_single_autograd(done, sent, received, self.group)
        return unpermute(done, places, x, self.how)

    def by_expert(self, rows: int, columns: int) -> list[int]:
        """The order of chunks that makes columns of rows."""
        return torch.arange(rows * columns).reshape(rows, columns).T.ravel().tolist()


def reordered(rows: torch.Tensor, sizes: list[int], order: list[int]) -> torch.Tensor:
    """Chunks of rows in another order."""
    chunks = rows.split(sizes)
    return torch.cat([chunks[chunk] for chunk in order])


def found(kind: type[Parallel], ranks: int, how: str = "", grads: bool = True, inputs: Any = X) -> Any:
    return gg.verify(
        Mixture(),
        lambda mesh: kind(mesh, how),
        (inputs,),
        mesh={"ep": ranks},
        in_relations=(EP,),
        out_relations=EP,
        grads=grads,
    )


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("kind", [Gathered, Exchanged])
def test_dispatchers_with_every_gradient(kind: type[Parallel], ranks: int) -> None:
    report = found(kind, ranks)
    assert report.verdict is gg.Verdict.REFINES, report.diagnostics


WRONG = [
    "experts of the next rank",
    "counts the other way round",
    "no probabilities",
    "probabilities by token",
    "other tokens",
    "capacity",
]


@pytest.mark.parametrize("how", WRONG)
@pytest.mark.parametrize("kind", [Gathered, Exchanged])
def test_wrong_dispatchers_are_never_proved(kind: type[Parallel], how: str) -> None:
    # where every rank waits for the rows of another's experts, the sizes do not fit and nothing runs
    refused = kind is Exchanged and how == "experts of the next rank"
    assert found(kind, 2, how, grads=False).verdict is (gg.Verdict.UNKNOWN if refused else gg.Verdict.BROKEN)


def test_ranks_with_unequal_numbers_of_tokens() -> None:
    report = found(Exchanged, 2, grads=False, inputs=gg.tensor(TOKENS - 1, WIDTH))
    assert report.verdict is gg.Verdict.REFINES, report.diagnostics


@pytest.mark.parametrize("how", ["chunks as they came", "chunks not put back"])
def test_chunks_in_another_order_are_refuted(how: str) -> None:
    assert found(Exchanged, 2, how, grads=False).verdict is gg.Verdict.BROKEN


def test_a_router_whose_gradient_nobody_adds_up() -> None:
    assert found(Exchanged, 2, "router not reduced").verdict is gg.Verdict.BROKEN
