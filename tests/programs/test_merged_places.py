"""The likeliest token over a divided vocabulary: every rank says where the largest of its part stands if it is the largest of all, and the ranks agree by MIN."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

import graphguard as gg

from .divided_vocabulary import verdict

Function = Callable[[torch.Tensor], torch.Tensor]
BEYOND = 1 << 30


def reduced(x: torch.Tensor, op: Any) -> torch.Tensor:
    x = x.clone()
    dist.all_reduce(x, op)
    return x


def greedy(
    x: torch.Tensor,
    otherwise: int = BEYOND,
    op: Any = dist.ReduceOp.MIN,
    *,
    keepdim: bool = False,
    offset: int | None = None,
    over: Any = dist.ReduceOp.MAX,
) -> torch.Tensor:
    value, place = x.max(-1, keepdim=keepdim)
    token = place + dist.get_rank() * (x.shape[-1] if offset is None else offset)
    return reduced(torch.where(value == reduced(value, over), token, otherwise), op)


def filled(x: torch.Tensor) -> torch.Tensor:
    value, place = x.max(-1)
    token = place + dist.get_rank() * x.shape[-1]
    return reduced(token.masked_fill(value < reduced(value, dist.ReduceOp.MAX), BEYOND), dist.ReduceOp.MIN)


def written(x: torch.Tensor) -> torch.Tensor:
    value, place = x.max(-1)
    token = place + dist.get_rank() * x.shape[-1]
    token[value != reduced(value, dist.ReduceOp.MAX)] = BEYOND
    return reduced(token, dist.ReduceOp.MIN)


def backwards(x: torch.Tensor) -> torch.Tensor:
    value, place = x.max(-1)
    token = place + (dist.get_world_size() - 1 - dist.get_rank()) * x.shape[-1]
    return reduced(torch.where(value == reduced(value, dist.ReduceOp.MAX), token, BEYOND), dist.ReduceOp.MIN)


def smallest(x: torch.Tensor) -> torch.Tensor:
    value, place = x.min(-1)
    token = place + dist.get_rank() * x.shape[-1]
    return reduced(torch.where(value == reduced(value, dist.ReduceOp.MIN), token, BEYOND), dist.ReduceOp.MIN)


def likeliest(x: torch.Tensor) -> torch.Tensor:
    return x.argmax(-1)


RIGHT: dict[str, tuple[Function, Function]] = {
    "where": (likeliest, greedy),
    "the whole vocabulary's size": (likeliest, lambda x: greedy(x, x.shape[1] * dist.get_world_size())),
    "the last token": (likeliest, lambda x: greedy(x, x.shape[1] * dist.get_world_size() - 1)),
    "filled": (likeliest, filled),
    "written": (likeliest, written),
    "kept": (lambda x: x.argmax(-1, keepdim=True), lambda x: greedy(x, keepdim=True)),
    "temperature": (likeliest, lambda x: greedy(x / 0.7)),
    "smallest": (lambda x: x.argmin(-1), smallest),
}
WRONG: dict[str, tuple[Function, Function]] = {
    "no start": (likeliest, lambda x: greedy(x, offset=0)),
    "another start": (likeliest, lambda x: greedy(x, offset=4)),
    "the other's start": (likeliest, backwards),
    "its own largest": (likeliest, lambda x: greedy(x, over=dist.ReduceOp.MIN)),
    "a token beside": (likeliest, lambda x: greedy(x, 5)),
    "no other number": (likeliest, lambda x: greedy(x, 0)),
    "the sum of others": (likeliest, lambda x: greedy(x, -1, dist.ReduceOp.SUM)),
    "the largest of others": (likeliest, lambda x: greedy(x, BEYOND, dist.ReduceOp.MAX)),
    "the last of several": (likeliest, lambda x: greedy(x, -1, dist.ReduceOp.MAX)),
    "the sum of several": (likeliest, lambda x: greedy(x, 0, dist.ReduceOp.SUM)),
    "the smallest": (lambda x: x.argmin(-1), greedy),
}


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize(("extent", "ranks"), [(10, 2), (12, 3)])
def test_places_of_the_largest(name: str, extent: int, ranks: int) -> None:
    found = verdict(*RIGHT[name], extent, ranks)
    assert found.verdict is gg.Verdict.REFINES, found.diagnostics


@pytest.mark.parametrize("name", WRONG)
def test_other_places(name: str) -> None:
    found = verdict(*WRONG[name])
    assert found.verdict is gg.Verdict.BROKEN, found.diagnostics
