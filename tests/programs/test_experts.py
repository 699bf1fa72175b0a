"""Mixtures of experts with experts on several ranks, one on each at the most: routing, capacity, expert choice; with gradients."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

from .collectives import Copy, Reduce

TOKENS, WIDTH, HIDDEN, EXPERTS, CHOSEN, CAPACITY = 6, 4, 8, 4, 2, 3
Layer = Callable[["Experts", torch.Tensor], torch.Tensor]


class Experts(nn.Module):
    """Some of the experts and the whole router; without a group, all of them."""

    def __init__(self, layer: Layer, mesh: Any = None) -> None:
        super().__init__()
        self.layer = layer
        self.group = None if mesh is None else mesh.get_group("ep")
        count = EXPERTS if mesh is None else EXPERTS // mesh.size()
        first = 0 if mesh is None else mesh.get_local_rank("ep") * count
        self.mine = slice(first, first + count)
        self.router = nn.Parameter(torch.empty(EXPERTS, WIDTH))
        self.up = nn.Parameter(torch.empty(count, WIDTH, HIDDEN))
        self.down = nn.Parameter(torch.empty(count, HIDDEN, WIDTH))

    def scores(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.router if self.group is None else Copy.apply(self.router, self.group))

    def each(self, x: torch.Tensor) -> torch.Tensor:
        """Every expert on its own rows: (experts, rows, width)."""
        return torch.bmm(F.silu(torch.bmm(x, self.up)), self.down)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.group is None:
            return self.layer(self, x)
        return Reduce.apply(self.layer(self, Copy.apply(x, self.group)), self.group)


def every_token(m: Experts, x: torch.Tensor) -> torch.Tensor:
    weights, chosen = torch.topk(F.softmax(m.scores(x), -1), CHOSEN, -1)
    gates = torch.zeros(TOKENS, EXPERTS).scatter(1, chosen, weights / weights.sum(-1, keepdim=True))
    rows = m.each(x.expand(m.up.shape[0], TOKENS, WIDTH))
    return torch.einsum("te,etd->td", gates[:, m.mine], rows)


def weighed_after_the_choice(m: Experts, x: torch.Tensor) -> torch.Tensor:
    scores, chosen = torch.topk(m.scores(x), CHOSEN, -1)
    gates = torch.zeros(TOKENS, EXPERTS).scatter(1, chosen, F.softmax(scores, -1))
    rows = m.each(x.expand(m.up.shape[0], TOKENS, WIDTH))
    return torch.einsum("te,etd->td", gates[:, m.mine], rows)


def not_renormalised(m: Experts, x: torch.Tensor) -> torch.Tensor:
    weights, chosen = torch.topk(F.softmax(m.scores(x), -1), CHOSEN, -1)
    gates = torch.zeros(TOKENS, EXPERTS).scatter(1, chosen, weights)
    rows = m.each(x.expand(m.up.shape[0], TOKENS, WIDTH))
    return torch.einsum("te,etd->td", gates[:, m.mine], rows)


def sigmoid_gates(m: Experts, x: torch.Tensor) -> torch.Tensor:
    scores = torch.sigmoid(m.scores(x))
    chosen = torch.topk(scores, CHOSEN, -1).indices
    weights = scores.gather(1, chosen)
    weights = weights / (weights.sum(-1, keepdim=True) + 1e-20) * 2.5
    gates = torch.zeros_like(scores).scatter(1, chosen, weights)
    rows = m.each(x.expand(m.up.shape[0], TOKENS, WIDTH))
    return torch.einsum("te,etd->td", gates[:, m.mine], rows)


def with_capacity(m: Experts, x: torch.Tensor) -> torch.Tensor:
    weights, chosen = torch.topk(F.softmax(m.scores(x), -1), CHOSEN, -1)
    hot = F.one_hot(chosen, EXPERTS)
    flat = hot.transpose(0, 1).reshape(CHOSEN * TOKENS, EXPERTS)
    place = (flat.cumsum(0) - 1) * flat
    kept = ((place < CAPACITY) & (flat > 0)).reshape(CHOSEN, TOKENS, EXPERTS).transpose(0, 1)
    place = place.reshape(CHOSEN, TOKENS, EXPERTS).transpose(0, 1)
    slots = (F.one_hot(place, CHOSEN * TOKENS)[..., :CAPACITY] * kept[..., None]).to(x.dtype)
    rows = m.each(torch.einsum("tec,td->ecd", slots.sum(1)[:, m.mine], x))
    return torch.einsum("tec,ecd->td", (slots * weights[..., None, None]).sum(1)[:, m.mine], rows)


def of_the_best_groups(m: Experts, x: torch.Tensor) -> torch.Tensor:
    """Experts in groups, of which some are left out: those whose best scores, with a bias that has no part in the gates, are small."""
    scores = torch.sigmoid(m.scores(x))
    biased = scores + torch.arange(EXPERTS) * 0.1
    groups = biased.unflatten(-1, (EXPERTS // 2, 2))
    best = groups.topk(1, -1).values.sum(-1).topk(1, -1).indices
    kept = torch.zeros(TOKENS, EXPERTS // 2).scatter(1, best, 1.0).bool()
    biased = groups.masked_fill(~kept[..., None], float("-inf")).flatten(1)
    chosen = biased.topk(CHOSEN, -1).indices
    gates = torch.zeros_like(scores).scatter(1, chosen, scores.gather(1, chosen))
    rows = m.each(x.expand(m.up.shape[0], TOKENS, WIDTH))
    return torch.einsum("te,etd->td", gates[:, m.mine], rows)


def of_all_groups(m: Experts, x: torch.Tensor) -> torch.Tensor:
    scores = torch.sigmoid(m.scores(x))
    chosen = (scores + torch.arange(EXPERTS) * 0.1).topk(CHOSEN, -1).indices
    gates = torch.zeros_like(scores).scatter(1, chosen, scores.gather(1, chosen))
    rows = m.each(x.expand(m.up.shape[0], TOKENS, WIDTH))
    return torch.einsum("te,etd->td", gates[:, m.mine], rows)


def chosen_by_experts(m: Experts, x: torch.Tensor) -> torch.Tensor:
    weights, tokens = torch.topk(F.softmax(m.scores(x), -1)[:, m.mine].t(), CAPACITY, -1)
    rows = m.each(x[tokens]) * weights[..., None]
    return torch.zeros_like(x).index_add(0, tokens.reshape(-1), rows.reshape(-1, WIDTH))


def softmax_over_own_experts(m: Experts, x: torch.Tensor) -> torch.Tensor:
    weights, tokens = torch.topk(F.softmax(m.scores(x)[:, m.mine], -1).t(), CAPACITY, -1)
    rows = m.each(x[tokens]) * weights[..., None]
    return torch.zeros_like(x).index_add(0, tokens.reshape(-1), rows.reshape(-1, WIDTH))


def verdict(spec: Layer, layer: Layer, ranks: int) -> gg.Verdict | None:
    return gg.verify(
        Experts(spec),
        lambda mesh: Experts(layer, mesh),
        (gg.tensor(TOKENS, WIDTH),),
        mesh={"ep": ranks},
        out_relations="replicate",
    ).verdict


@pytest.mark.parametrize("layer", [every_token, sigmoid_gates, with_capacity, of_the_best_groups, chosen_by_experts])
@pytest.mark.parametrize("ranks", [2, EXPERTS])
def test_layers(layer: Layer, ranks: int) -> None:
    assert verdict(layer, layer, ranks) is gg.Verdict.REFINES


def test_weights_of_experts_that_were_chosen_before_or_after() -> None:
    """A softmax over the chosen experts is what the softmax over all of them gives once it is divided by their sum; gradients too."""
    assert verdict(every_token, weighed_after_the_choice, 2) is gg.Verdict.REFINES
    assert verdict(weighed_after_the_choice, every_token, 2) is gg.Verdict.REFINES
    assert verdict(not_renormalised, weighed_after_the_choice, 2) is gg.Verdict.BROKEN


def test_softmax_over_part_of_the_experts() -> None:
    assert verdict(chosen_by_experts, softmax_over_own_experts, 2) is gg.Verdict.BROKEN


def test_groups_that_are_not_left_out() -> None:
    assert verdict(of_the_best_groups, of_all_groups, 2) is gg.Verdict.BROKEN


def balance(x: torch.Tensor, router: torch.Tensor, mesh: Any, early: bool) -> torch.Tensor:
    """The load-balancing loss: the share of tokens of an expert times its mean probability, over all tokens."""
    probabilities = F.softmax(x @ router, -1)
    chosen = torch.topk(probabilities, CHOSEN, -1).indices
    share = F.one_hot(chosen, EXPERTS).to(x.dtype).sum(1).mean(0)
    mean = probabilities.mean(0)
    if mesh is None:
        return EXPERTS * (share * mean).sum() / CHOSEN
    group, ranks = mesh.get_group("dp"), mesh.size()
    if early:
        return Reduce.apply(EXPERTS * (share * mean).sum() / CHOSEN, group) / ranks
    return EXPERTS * (Reduce.apply(share, group) / ranks * (Reduce.apply(mean, group) / ranks)).sum() / CHOSEN


@pytest.mark.parametrize(("early", "wanted"), [(False, gg.Verdict.REFINES), (True, gg.Verdict.BROKEN)])
def test_balance(early: bool, wanted: gg.Verdict) -> None:
    report = gg.verify(
        lambda x, router: balance(x, router, None, False),
        lambda mesh: lambda x, router: balance(x, router, mesh, early),
        (gg.tensor(8, WIDTH), gg.tensor(WIDTH, EXPERTS)),
        mesh={"dp": 4},
        in_relations=({"dp": Shard(0)}, {"dp": Replicate()}),
    )
    assert report.verdict is wanted


class ChosenByScore(nn.Module):
    """Every expert sees all tokens, weighted by a sigmoid of a score that is minus infinity for all experts but the chosen ones; each rank has a part of the hidden dim."""

    def __init__(self, chosen: int, parts: int = 1, total: Any = lambda y: y) -> None:
        super().__init__()
        self.router = nn.Parameter(torch.empty(4, 3))
        self.up, self.down = nn.Parameter(torch.empty(3, 4, 6 // parts)), nn.Parameter(torch.empty(3, 6 // parts, 4))
        self.chosen, self.total = chosen, total

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = x @ self.router
        best, place = torch.topk(scores, self.chosen, -1)
        weight = torch.sigmoid(torch.full_like(scores, float("-inf")).scatter_(-1, place, best))
        tokens = weight.t().unsqueeze(-1) * x
        return self.total(torch.bmm(F.silu(torch.bmm(tokens, self.up)), self.down).sum(0))


def added_up(y: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(y)
    return y


@pytest.mark.parametrize("chosen", [1, 2])
@pytest.mark.parametrize(("total", "verdict"), [(added_up, gg.Verdict.REFINES), (lambda y: y, gg.Verdict.BROKEN)])
def test_scores_that_are_written_over_minus_infinity(chosen: int, total: Any, verdict: gg.Verdict) -> None:
    impl = lambda _: ChosenByScore(chosen, 2, total)  # noqa: E731
    found = gg.verify(
        ChosenByScore(chosen), impl, (gg.tensor(5, 4),), mesh={"tp": 2}, out_relations="replicate", grads=False
    )
    assert found.verdict is verdict, found.diagnostics
