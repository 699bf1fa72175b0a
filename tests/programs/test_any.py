"""Whether any element of all ranks is out of order, as overflow is looked for: by sums, maxima and lists of every rank's answer."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard

import graphguard as gg

from .collectives import gathered, reduced

Ask = Callable[[torch.Tensor], torch.Tensor]


def any_of(x: torch.Tensor) -> torch.Tensor:
    return (x > 4).any(-1)


def largest(x: torch.Tensor) -> torch.Tensor:
    return (x > 4).float().amax(-1)


RIGHT: list[Ask] = [
    lambda x: reduced(any_of(x).int()) > 0,
    lambda x: reduced(any_of(x).float()).bool(),
    lambda x: reduced(any_of(x).int()) >= 1,
    lambda x: ~(reduced(any_of(x).int()) == 0),
    lambda x: ~(reduced(any_of(x).int()) <= 0),
    lambda x: reduced((x > 4).sum(-1)) > 0,
    lambda x: reduced(any_of(x).float(), dist.ReduceOp.MAX) > 0,
    lambda x: reduced(largest(x), dist.ReduceOp.MAX) > 0,
    lambda x: reduced(largest(x)) > 0,
    lambda x: gathered(any_of(x)).any(0),
]
WRONG: list[Ask] = [
    lambda x: reduced(any_of(x).int()) > 1,
    lambda x: reduced(any_of(x).int()) == 1,
    lambda x: reduced(any_of(x).int(), dist.ReduceOp.MIN) > 0,
    lambda x: reduced((x > 4).sum(-1)) > 1,
    lambda x: reduced((x > 4).all(-1).int()) > 0,
]


def verdict(part: Ask, whole: Ask = any_of) -> gg.Verdict | None:
    report = gg.verify(
        whole,
        lambda mesh: part,
        inputs=(gg.tensor(9, 6),),
        mesh={"dp": 2},
        in_relations={"dp": Shard(1)},
        out_relations="replicate",
    )
    return report.verdict


@pytest.mark.parametrize("ask", RIGHT)
def test_any(ask: Ask) -> None:
    assert verdict(ask) is gg.Verdict.REFINES


@pytest.mark.parametrize("ask", WRONG)
def test_another_question(ask: Ask) -> None:
    assert verdict(ask) is gg.Verdict.BROKEN


MAX, MIN, PRODUCT = dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT
FLAGS: list[tuple[Ask, Ask, bool]] = [
    (lambda x: any_of(x).float(), lambda x: reduced(any_of(x).float(), MAX), True),
    (lambda x: any_of(x).long(), lambda x: reduced(any_of(x).long(), MAX), True),
    (lambda x: (x > 4).any().float(), lambda x: reduced((x > 4).any().float(), MAX), True),
    (lambda x: (x > 4).all(-1).float(), lambda x: reduced((x > 4).all(-1).float(), MIN), True),
    (lambda x: (x > 4).all(-1).int(), lambda x: 1 - reduced(1 - (x > 4).all(-1).int(), MAX), True),
    (lambda x: 1 - any_of(x).float(), lambda x: reduced(1 - any_of(x).float(), MIN), True),
    (lambda x: (x > 4).all(-1).int(), lambda x: reduced((x > 4).all(-1).int(), PRODUCT), True),
    (lambda x: 1 - any_of(x).float(), lambda x: reduced(1 - any_of(x).float(), PRODUCT), True),
    (lambda x: any_of(x).int(), lambda x: reduced(any_of(x).int(), PRODUCT), False),
    (lambda x: 2 * (x > -1).all(-1).int(), lambda x: reduced(2 * (x > -1).all(-1).int(), PRODUCT), False),
    (lambda x: any_of(x).float(), lambda x: reduced(any_of(x).float(), MIN), False),
    (lambda x: any_of(x).float(), lambda x: reduced(any_of(x).float()), False),
    (lambda x: (x > -1).all(-1).float(), lambda x: reduced((x > -1).all(-1).float(), MAX), False),
    (lambda x: (x > 4).all(-1).float(), lambda x: reduced(any_of(x).float(), MIN), False),
]


@pytest.mark.parametrize(("whole", "part", "right"), FLAGS)
def test_flags_as_numbers(whole: Ask, part: Ask, right: bool) -> None:
    assert verdict(part, whole) is (gg.Verdict.REFINES if right else gg.Verdict.BROKEN)


MASKS: list[tuple[Ask, Ask, bool]] = [
    (lambda x: ((x > 4) | (x < 1)).float(), lambda x: torch.maximum((x > 4).float(), (x < 1).float()), True),
    (lambda x: ((x > 1) & (x < 4)).float(), lambda x: torch.minimum((x > 1).float(), (x < 4).float()), True),
    (lambda x: ((x > 4) | (x < 1)).float(), lambda x: torch.minimum((x > 4).float(), (x < 1).float()), False),
]


@pytest.mark.parametrize(("whole", "part", "right"), MASKS)
def test_masks_as_numbers(whole: Ask, part: Ask, right: bool) -> None:
    found = gg.verify(
        whole, lambda mesh: part, inputs=(gg.tensor(4, 6),), mesh={"dp": 2}, in_relations={"dp": Shard(1)}
    )
    assert found.verdict is (gg.Verdict.REFINES if right else gg.Verdict.BROKEN)


CHECKS: list[Ask] = [
    lambda x: (~torch.isfinite(x)).any(-1),
    lambda x: (x != x).any(-1),
    lambda x: ~((x == x).all(-1)),
    lambda x: ((x == float("inf")) | (x == -float("inf"))).any(-1),
]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("agreed", [True, False])
def test_what_only_one_rank_finds_is_told_to_all(check: Ask, agreed: bool) -> None:
    def rank(x: torch.Tensor) -> torch.Tensor:
        found = check(x).float()
        return (reduced(found, dist.ReduceOp.MAX) if agreed else found) > 0

    assert verdict(rank, check) is (gg.Verdict.REFINES if agreed else gg.Verdict.BROKEN)


@pytest.mark.parametrize("wrong", ["", "local", "every rank", "kept"])
def test_a_step_that_overflow_skips(wrong: str) -> None:
    def step(p: torch.Tensor, g: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return stepped(p, g, scale, (~torch.isfinite(g)).any())

    def stepped(
        p: torch.Tensor, g: torch.Tensor, scale: torch.Tensor, bad: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        taken = p - 0.1 * torch.where(bad, torch.zeros_like(g), g) / scale
        return torch.where(bad, p, taken), torch.where(bad, scale / 2, scale * 2)

    def impl(mesh: Any) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
        def run(p: torch.Tensor, g: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            found = (~torch.isfinite(g)).any().float()
            if wrong != "local":
                found = reduced(found, dist.ReduceOp.MIN if wrong == "every rank" else dist.ReduceOp.MAX)
            new, after = stepped(p, g, scale, found > 0)
            return new, scale * 2 if wrong == "kept" else after

        return run

    shard = {"tp": Shard(0)}
    report = gg.verify(
        step,
        impl,
        (gg.tensor(6, 3), gg.tensor(6, 3), gg.tensor()),
        mesh={"tp": 2},
        in_relations=(shard, shard, {}),
        out_relations=(shard, {}),
    )
    assert report.verdict is (gg.Verdict.BROKEN if wrong else gg.Verdict.REFINES)
