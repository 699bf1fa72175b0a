"""How many tokens go to each expert, counted by ``torch.bincount``: its size is known where a least length is given."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard

import graphguard as gg

TOKENS, WIDTH, EXPERTS, CHOSEN = 6, 4, 5, 2


def summed(x: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(x)
    return x


def balance(x: torch.Tensor, router: torch.Tensor, total: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    shares = torch.softmax(x @ router, -1)
    chosen = shares.topk(CHOSEN, -1).indices
    load = total(torch.bincount(chosen.flatten(), minlength=EXPERTS)) / (CHOSEN * TOKENS)
    return EXPERTS * (load * total(shares.sum(0)) / TOKENS).sum()


def verdict(spec: Any, impl: Any, inputs: Any, placed: Any) -> Any:
    return gg.verify(
        spec, lambda mesh: impl, inputs=inputs, mesh={"dp": 2}, in_relations=placed, out_relations="replicate"
    )


@pytest.mark.parametrize(
    ("total", "wanted"), [(summed, gg.Verdict.REFINES), (lambda x: x, gg.Verdict.BROKEN)], ids=["summed", "of-a-rank"]
)
def test_load_of_experts(total: Callable[[torch.Tensor], torch.Tensor], wanted: gg.Verdict) -> None:
    report = verdict(
        lambda x, router: balance(x, router, lambda t: t),
        lambda x, router: balance(x, router, total),
        (gg.tensor(TOKENS, WIDTH), gg.tensor(WIDTH, EXPERTS)),
        ({"dp": Shard(0)}, {}),
    )
    assert report.verdict is wanted, report.diagnostics


def counts(length: int, weighted: bool, total: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    def run(x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return total(torch.bincount(x, weights=weights if weighted else None, minlength=length))[:EXPERTS]

    return run


@pytest.mark.parametrize("weighted", [False, True])
def test_counts_of_parts_add_up(weighted: bool) -> None:
    inputs = (gg.tensor(TOKENS, dtype=torch.int64), gg.tensor(TOKENS))
    report = verdict(
        counts(EXPERTS, weighted, lambda t: t), counts(EXPERTS, weighted, summed), inputs, {"dp": Shard(0)}
    )
    assert report.verdict is gg.Verdict.REFINES, report.diagnostics
    assert any("0 <= x < 5" in line for line in report.assumed)


def test_numbers_past_the_least_length_make_more_counts() -> None:
    inputs = (gg.tensor(TOKENS, dtype=torch.int64, low=0, high=7), gg.tensor(TOKENS))
    report = verdict(counts(7, False, lambda t: t), counts(EXPERTS, False, summed), inputs, {"dp": Shard(0)})
    assert report.verdict is not gg.Verdict.REFINES


HELD: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a float held by a whole number": lambda m: m.float().sum().clamp(min=1),
    "a whole number held by a float": lambda m: m.sum().clamp(min=1.0),
    "the larger one": lambda m: torch.maximum(m.float().sum(), torch.ones(())),
}


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("dtype", [torch.bool, torch.int64])
def test_a_count_that_is_held_is_the_same_as_a_float(held: str, dtype: torch.dtype) -> None:
    def mean(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return (x * mask).sum() / mask.sum().clamp(min=1)

    def of_ranks(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return summed((x * mask).sum()) / HELD[held](summed(mask.int()))

    inputs = (gg.tensor(TOKENS), gg.tensor(TOKENS, dtype=dtype, high=2 if dtype is torch.int64 else None))
    report = verdict(mean, of_ranks, inputs, {"dp": Shard(0)})
    assert report.verdict is gg.Verdict.REFINES, report.diagnostics


def test_a_root_of_a_count_is_no_whole_number() -> None:
    inputs = (gg.tensor(TOKENS, dtype=torch.int64, high=9),)
    report = verdict(
        lambda n: n.float().sqrt().clamp(min=2), lambda n: n.clamp(min=2).float().sqrt(), inputs, {"dp": Shard(0)}
    )
    assert report.verdict is gg.Verdict.BROKEN, report.diagnostics
