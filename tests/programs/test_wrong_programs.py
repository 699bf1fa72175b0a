"""Programs that differ from their specification for some inputs only: none of them is proved, and their right neighbours are."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard

import graphguard as gg

Function = Callable[..., Any]


def proved(spec: Function, impl: Function, *inputs: Any) -> bool:
    """Whether the engine proves it; numbers that contradict a proof count as one."""
    report = gg.verify(spec, lambda mesh: impl, inputs=inputs, mesh={"tp": 2}, out_relations="replicate")
    return report.verdict is gg.Verdict.REFINES or any("disagree" in found.message for found in report.diagnostics)


def whole_numbers(low: int, high: int) -> Any:
    return gg.tensor(4, 6, dtype=torch.int64, low=low, high=high)


def added(x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    dist.all_reduce(x)
    return x


def share(x: torch.Tensor) -> torch.Tensor:
    return x.chunk(2)[dist.get_rank()]


NARROW: list[tuple[Function, Function, int, int]] = [
    (lambda x: x, lambda x: x.to(torch.int8).to(torch.int64), 0, 300),
    (lambda x: x, lambda x: x.to(torch.uint8).to(torch.int64), -5, 5),
    (lambda x: x.sum(0), lambda x: x.to(torch.int8).sum(0, dtype=torch.int8).to(torch.int64), 0, 120),
    (lambda x: x * x, lambda x: (x.to(torch.int8) * x.to(torch.int8)).to(torch.int64), 0, 100),
    (lambda x: x.to(torch.uint8) - 10, lambda x: x.to(torch.int64) - 10, 0, 100),
    (lambda x: x.sum(0), lambda x: added(share(x).sum(0).to(torch.uint8)).to(torch.int64), 0, 100),
    (lambda x: x + 2**53, lambda x: x + torch.tensor(2**53 + 1), 0, 8),
    (lambda x: x + torch.tensor([2**60] * 6), lambda x: x + torch.tensor([2**60] * 5 + [2**60 + 1]), 0, 8),
]


@pytest.mark.parametrize(("spec", "impl", "low", "high"), NARROW)
def test_integers_that_do_not_fit(spec: Function, impl: Function, low: int, high: int) -> None:
    assert not proved(spec, impl, whole_numbers(low, high))


def test_the_same_narrow_arithmetic_on_shards() -> None:
    def gathered(x: torch.Tensor) -> torch.Tensor:
        mine = share(x).to(torch.uint8) * 3
        parts = [torch.empty_like(mine) for _ in range(2)]
        dist.all_gather(parts, mine)
        return torch.cat(parts)

    assert proved(lambda x: x.to(torch.uint8) * 3, gathered, whole_numbers(0, 100))


def test_the_largest_in_no_order_are_not_the_largest_in_order() -> None:
    def largest(ordered: bool) -> Function:
        return lambda x: x.topk(2, 0, sorted=ordered)[0]

    assert not proved(largest(True), largest(False), gg.tensor(4, 6))
    assert proved(largest(False), largest(False), gg.tensor(4, 6))


TABLE = gg.tensor(8, 4)
SOME: list[tuple[Function, Function]] = [
    (lambda i, t: (t[i[:3]], i[3:]), lambda i, t: (t[i[:3]], i[3:].clamp(0, 7))),
    (lambda i, t: (t[i[:3]], i >= 0), lambda i, t: (t[i[:3]], torch.ones(6, dtype=torch.bool))),
    (lambda i, t: (t[i[:3]], t[i[3:] % 8]), lambda i, t: (t[i[:3]], t[i[3:]])),
    (lambda i, t: (t[i[::2]], i[1::2].clamp(0, 7)), lambda i, t: (t[i[::2]], i[1::2])),
]


@pytest.mark.parametrize(("spec", "impl"), SOME)
def test_looking_up_some_indices_says_nothing_of_the_others(spec: Function, impl: Function) -> None:
    assert not proved(spec, impl, gg.tensor(6, dtype=torch.int64), TABLE)


def test_looking_up_all_indices_in_parts() -> None:
    def shifted(i: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return t[i[:-1]] * t[i[1:]]

    def clamped(i: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        low = 4 * dist.get_rank()
        inside = ((i >= low) & (i < low + 4))[:, None]
        whole = added(share(t)[(i - low).clamp(0, 3)] * inside)
        return whole[:-1] * whole[1:]

    assert proved(shifted, clamped, gg.tensor(6, dtype=torch.int64), TABLE)


def test_rows_between_parts_of_which_a_rank_reads_none() -> None:
    found = gg.verify(
        lambda x: torch.gradient(x, dim=1),
        lambda _: lambda x: torch.gradient(x, dim=1),
        (gg.tensor(5, 4),),
        mesh={"tp": 2},
        in_relations={"tp": Shard(1)},
    )
    assert found.verdict is gg.Verdict.BROKEN
    assert "torch.gradient(x, dim=1)" in found.diagnostics[0].message


def best_rows(local: bool) -> Function:
    """The largest of every column over all ranks' rows, at their places."""

    def run(x: torch.Tensor) -> torch.Tensor:
        parts = [torch.empty_like(x) for _ in range(2)]
        dist.all_gather(parts, x)
        whole = torch.cat([x, x] if local else parts)
        best, places = whole.topk(3, 0)
        return share(torch.zeros_like(whole).scatter(0, places, best))

    return run


@pytest.mark.parametrize("local", [False, True])
def test_ties_excuse_the_elements_alone_that_they_decide(local: bool) -> None:
    rows = {"tp": Shard(0)}

    def spec(x: torch.Tensor) -> torch.Tensor:
        best, places = x.topk(3, 0)
        return torch.zeros_like(x).scatter(0, places, best)

    report = gg.verify(
        spec, lambda mesh: best_rows(local), (gg.tensor(8, 3),), mesh={"tp": 2}, in_relations=rows, out_relations=rows
    )
    assert report.verdict is (gg.Verdict.BROKEN if local else gg.Verdict.REFINES), report.diagnostics
