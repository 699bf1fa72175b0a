"""Numbers that a program draws from a seed and reads: orders of samples, layers that are left out; they are what PyTorch draws."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import graphguard as gg
from graphguard.report.diagnostics import Report

Function = Callable[[torch.Tensor], torch.Tensor]
SAMPLES, WIDTH = 8, 3
DATA = gg.tensor(SAMPLES, WIDTH)


def report(spec: Function, impl: Callable[[Any], Function]) -> Report:
    return gg.verify(spec, impl, (DATA,), mesh={"dp": 2}, out_relations="replicate")


def total(data: torch.Tensor) -> torch.Tensor:
    return data.square().sum()


class Rows(Dataset[torch.Tensor]):
    def __init__(self, data: torch.Tensor) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.data[index]


def sampled(replicas: int, seed: Callable[[int], int]) -> Callable[[Any], Function]:
    def build(mesh: Any) -> Function:
        rank = mesh.get_local_rank("dp")

        def run(data: torch.Tensor) -> torch.Tensor:
            rows = Rows(data)
            sampler = DistributedSampler(rows, replicas, rank, shuffle=True, seed=seed(rank))
            sampler.set_epoch(1)
            loss = torch.zeros(())
            for batch in DataLoader(rows, batch_size=2, sampler=sampler):
                loss = loss + total(batch)
            dist.all_reduce(loss)
            return loss

        return run

    return build


@pytest.mark.parametrize(
    ("replicas", "seed", "verdict"),
    [
        (2, lambda rank: 7, gg.Verdict.REFINES),
        (2, lambda rank: 7 + rank, gg.Verdict.BROKEN),
        (4, lambda rank: 7, gg.Verdict.BROKEN),
    ],
)
def test_samplers_that_shuffle(replicas: int, seed: Callable[[int], int], verdict: gg.Verdict) -> None:
    found = report(total, sampled(replicas, seed))
    assert found.verdict is verdict
    assert "numbers drawn with seed 8 are those that PyTorch draws on a CPU" in found.assumed


def in_order(draw: Callable[[], torch.Tensor]) -> Function:
    return lambda data: data[draw().tolist()]


def after_a_model() -> torch.Tensor:
    torch.manual_seed(3)
    torch.nn.Linear(WIDTH, 5)
    torch.rand(2, 2)
    torch.zeros(3).uniform_()
    return torch.randperm(SAMPLES)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(5)),
        lambda: torch.randint(0, SAMPLES, (4,), generator=torch.Generator().manual_seed(5)),
        lambda: torch.zeros(3, dtype=torch.int64).random_(0, SAMPLES, generator=torch.Generator().manual_seed(5)),
        lambda: torch.multinomial(torch.arange(SAMPLES) + 1.0, 3, generator=torch.Generator().manual_seed(5)),
        after_a_model,
    ],
)
def test_what_is_read_is_what_pytorch_draws(draw: Callable[[], torch.Tensor]) -> None:
    state = torch.get_rng_state()
    drawn = draw()
    torch.set_rng_state(state)
    assert report(lambda data: data[drawn], lambda mesh: in_order(draw)).verdict is gg.Verdict.REFINES
    turned = drawn.flip(0)
    assert report(lambda data: data[turned], lambda mesh: in_order(draw)).verdict is gg.Verdict.BROKEN


def test_an_order_that_one_rank_sends() -> None:
    def impl(mesh: Any) -> Function:
        rank = mesh.get_local_rank("dp")

        def run(data: torch.Tensor) -> torch.Tensor:
            order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(rank))
            dist.broadcast(order, src=0)
            loss = total(data[order.tolist()[rank::2]])
            dist.all_reduce(loss)
            return loss

        return run

    assert report(total, impl).verdict is gg.Verdict.REFINES


def layers_are_left_out(seed: int, *, summed: bool) -> Function:
    def run(data: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(seed)
        for _ in range(4):
            if torch.rand(()).item() < 0.5:
                data = torch.tanh(data)
                if summed:
                    dist.all_reduce(data, op=dist.ReduceOp.AVG)
        return data

    return run


def test_layers_that_are_left_out_by_seed() -> None:
    spec = layers_are_left_out(5, summed=False)
    assert report(spec, lambda mesh: layers_are_left_out(5, summed=True)).verdict is gg.Verdict.REFINES
    apart = report(spec, lambda mesh: layers_are_left_out(5 + mesh.get_local_rank("dp"), summed=True))
    assert apart.diagnostics[0].code == "collective-mismatch"


def test_the_specification_reads_and_the_ranks_do_not() -> None:
    def order() -> torch.Tensor:
        return torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(2))

    spec = in_order(order)
    assert report(spec, lambda mesh: lambda data: data[order()]).verdict is gg.Verdict.REFINES
    assert report(spec, lambda mesh: lambda data: data[order().flip(0)]).verdict is gg.Verdict.BROKEN


@pytest.mark.parametrize(
    "draw",
    [
        lambda data: torch.randperm(SAMPLES),
        lambda data: torch.randperm(SAMPLES, generator=torch.Generator()),
    ],
)
def test_without_a_seed_nothing_is_known(draw: Callable[[torch.Tensor], torch.Tensor]) -> None:
    found = report(total, lambda mesh: lambda data: total(data[draw(data).tolist()]))
    assert found.verdict is None
    assert "needs a number" in found.diagnostics[0].message


def test_behind_draws_whose_number_is_not_followed_nothing_is_known() -> None:
    def run(data: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(1)
        data = torch.nn.functional.dropout(data, 0.5)
        return total(data[torch.randperm(SAMPLES).tolist()])

    found = report(total, lambda mesh: run)
    assert found.verdict is None
    assert "needs a number" in found.diagnostics[0].message


def test_what_is_not_read_stands_for_any_numbers() -> None:
    def noisy(data: torch.Tensor) -> torch.Tensor:
        return data + torch.randn(data.shape, generator=torch.Generator().manual_seed(4))

    found = report(noisy, lambda mesh: noisy)
    assert found.verdict is gg.Verdict.REFINES
    assert not any("drawn" in text for text in found.assumed)
