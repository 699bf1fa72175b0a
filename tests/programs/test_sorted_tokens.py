"""Tokens sorted by expert, computed in groups and put back: the order of sorting is a permutation that the result does not depend on; with gradients."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import graphguard as gg

from .collectives import Copy, Reduce

TOKENS, WIDTH, HIDDEN, EXPERTS, CHOSEN = 6, 8, 16, 4, 2
KEYS = gg.tensor(TOKENS, dtype=torch.int64, low=0, high=EXPERTS)
Program = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def verdict(spec: Program, impl: Program) -> gg.Verdict | None:
    inputs = (gg.tensor(TOKENS, 3), KEYS)
    return gg.verify(spec, lambda mesh: impl, inputs, mesh={"tp": 2}, out_relations="replicate").verdict


def plain(x: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x * 2)


def by_index(x: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    order = keys.argsort()
    back = torch.empty_like(order)
    back[order] = torch.arange(TOKENS)
    return torch.tanh(x[order] * 2)[back]


def by_sorting_again(x: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    order = keys.sort(descending=True).indices
    return torch.tanh(x[order] * 2)[order.argsort()]


def by_writing(x: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    order = keys.argsort()
    out = torch.empty_like(x)
    out[order] = torch.tanh(x[order] * 2)
    return out


def by_adding(x: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    order = keys.argsort()
    return torch.zeros_like(x).index_add(0, order, torch.tanh(x[order] * 2))


def by_scattering(x: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    order = keys.argsort().unsqueeze(1).expand(TOKENS, 3)
    return torch.zeros_like(x).scatter(0, order, torch.tanh(x.gather(0, order) * 2))


def left_sorted(x: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x[keys.argsort()] * 2)


def sorted_twice(x: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    order = keys.argsort()
    return torch.tanh(x[order] * 2)[order]


def one_place_late(x: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    order = keys.argsort()
    out = torch.zeros_like(x)
    out[order.roll(1)] = torch.tanh(x[order] * 2)
    return out


def back_by_another_line(x: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x[keys.argsort()] * 2)[x[:, 0].argsort().argsort()]


def some_of_the_places(x: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    places = keys.topk(TOKENS - 1).indices
    return torch.zeros_like(x).index_add(0, places, torch.tanh(x[places] * 2))


RIGHT = [by_index, by_sorting_again, by_writing, by_adding, by_scattering]


@pytest.mark.parametrize("impl", RIGHT)
def test_there_and_back(impl: Program) -> None:
    assert verdict(plain, impl) is gg.Verdict.REFINES


@pytest.mark.parametrize("impl", [left_sorted, sorted_twice, one_place_late, back_by_another_line, some_of_the_places])
def test_not_back_where_they_were(impl: Program) -> None:
    assert verdict(plain, impl) is gg.Verdict.BROKEN


def summed_in_order(x: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    order = keys.argsort()
    return x[order].cumsum(0)[order.argsort()]


def test_a_running_sum_depends_on_the_order() -> None:
    assert verdict(lambda x, keys: x.cumsum(0), summed_in_order) is gg.Verdict.BROKEN


def ordered(x: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    return x * keys.sort().values.unsqueeze(1)


def looked_up(x: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    return x * keys[keys.argsort()].unsqueeze(1)


def falling(x: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    return x * keys.sort(descending=True).values.unsqueeze(1)


@pytest.mark.parametrize(("impl", "wanted"), [(looked_up, gg.Verdict.REFINES), (falling, gg.Verdict.BROKEN)])
def test_sorted_values_are_the_values_at_their_places(impl: Program, wanted: gg.Verdict) -> None:
    assert verdict(ordered, impl) is wanted


def repeated(x: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x.repeat_interleave(2, 0))


def of_copies(first: bool) -> Program:
    """Two copies of every token, sorted by keys of their own."""

    def run(x: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        order = keys.flatten().argsort(stable=True)
        token = order // 2 if first else order % TOKENS
        return torch.zeros(2 * TOKENS, 3).index_add(0, order, torch.tanh(x[token]))

    return run


@pytest.mark.parametrize(("first", "wanted"), [(True, gg.Verdict.REFINES), (False, gg.Verdict.BROKEN)])
def test_copies_of_tokens(first: bool, wanted: gg.Verdict) -> None:
    inputs = (gg.tensor(TOKENS, 3), gg.tensor(TOKENS, 2, dtype=torch.int64, low=0, high=EXPERTS))
    report = gg.verify(repeated, lambda mesh: of_copies(first), inputs, mesh={"tp": 2}, out_relations="replicate")
    assert report.verdict is wanted


class Grouped(nn.Module):
    """Every expert's hidden units are divided over the ranks; tokens are sorted, multiplied in groups, put back and added up."""

    def __init__(self, mesh: Any = None, wrong: str = "") -> None:
        super().__init__()
        self.group = None if mesh is None else mesh.get_group("tp")
        self.wrong = wrong
        width = HIDDEN if mesh is None else HIDDEN // mesh.size()
        self.router = nn.Parameter(torch.empty(EXPERTS, WIDTH))
        self.up = nn.Parameter(torch.empty(EXPERTS, WIDTH, width))
        self.down = nn.Parameter(torch.empty(EXPERTS, width, WIDTH))

    def counts(self, chosen: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        return torch.histc(keys.float(), bins=EXPERTS, min=0, max=EXPERTS - 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = torch.topk(F.softmax(F.linear(x, self.router), -1), CHOSEN, -1)
        if self.group is not None:
            x = Copy.apply(x, self.group)
            weights = weights if self.wrong == "router" else Copy.apply(weights, self.group)
        keys, order = chosen.reshape(-1).sort()
        ends = self.counts(chosen, keys).cumsum(0, dtype=torch.int32)
        hidden = F.silu(torch._grouped_mm(x[order // CHOSEN], self.up, offs=ends))
        out = torch._grouped_mm(hidden, self.down, offs=ends)
        out = out if self.wrong == "weights" else out * weights.reshape(-1)[order].unsqueeze(1)
        back = torch.empty_like(order)
        back[order] = torch.arange(order.shape[0])
        out = out[order if self.wrong == "order" else back].view(TOKENS, CHOSEN, WIDTH).sum(1)
        return out if self.group is None else Reduce.apply(out, self.group)


class ByChoice(Grouped):
    """Counts from the table of who chose whom."""

    def counts(self, chosen: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        table = torch.zeros(TOKENS, EXPERTS, dtype=torch.bool).scatter(1, chosen, True)
        return table.sum(0)


class ByAdding(Grouped):
    """Counts by adding ones."""

    def counts(self, chosen: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        return torch.zeros(EXPERTS).scatter_add(0, keys, torch.ones(keys.shape[0]))


class Dense(Grouped):
    """Every token with the weights of its experts, without sorting."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = torch.topk(F.softmax(F.linear(x, self.router), -1), CHOSEN, -1)
        hidden = F.silu(torch.einsum("td,tkdf->tkf", x, self.up[chosen]))
        return torch.einsum("tkf,tkfd,tk->td", hidden, self.down[chosen], weights)


def of_layers(spec: nn.Module, make: Callable[[Any], nn.Module]) -> gg.Verdict | None:
    inputs = (gg.tensor(TOKENS, WIDTH),)
    return gg.verify(spec, make, inputs, mesh={"tp": 2}, out_relations="replicate").verdict


@pytest.mark.parametrize("layer", [Grouped, ByChoice, ByAdding])
@pytest.mark.parametrize("spec", [Grouped, Dense])
def test_groups(layer: type[Grouped], spec: type[Grouped]) -> None:
    assert of_layers(spec(), layer) is gg.Verdict.REFINES


@pytest.mark.parametrize("wrong", ["router", "weights", "order"])
def test_mistakes_in_groups(wrong: str) -> None:
    assert of_layers(Grouped(), lambda mesh: Grouped(mesh, wrong)) is gg.Verdict.BROKEN
