"""Causal attention in parts that are merged by the logarithms of their sums, the sequence in zigzag order: rank r of n has chunks r and 2n - 1 - r."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

BATCH, HEADS, TOKENS, WIDTH = 2, 3, 16, 5
Part = tuple[torch.Tensor, torch.Tensor]


class Attention(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> Part:
    scores = q @ k.transpose(-1, -2) * WIDTH**-0.5
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    return scores.softmax(-1) @ v, scores.logsumexp(-1, keepdim=True)


def merged(one: Part, two: Part) -> Part:
    (out, lse), (other, more) = one, two
    return out - torch.sigmoid(more - lse) * (out - other), lse - F.logsigmoid(lse - more)


class Zigzag(nn.Module):
    def __init__(self, group: Any, half: int = 0) -> None:
        super().__init__()
        self.group, self.half = group, half
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)

    def mine(self, x: torch.Tensor, rank: int) -> torch.Tensor:
        chunks = x.chunk(2 * self.ranks, 2)
        return torch.cat([chunks[rank], chunks[2 * self.ranks - 1 - rank]], 2)

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q = self.mine(q, self.rank)
        out, lse = attend(q, self.mine(k, self.rank), self.mine(v, self.rank), causal=True)
        middle = q.shape[2] // 2
        for step in range(1, self.ranks):
            source = (self.rank - step) % self.ranks
            keys, values = self.mine(k, source), self.mine(v, source)
            if source < self.rank:  # their first chunk is before all of ours, their second after
                keys, values = keys.chunk(2, 2)[self.half], values.chunk(2, 2)[self.half]
                out, lse = merged((out, lse), attend(q, keys, values, causal=False))
            else:  # only our second chunk is after theirs
                late = attend(q[:, :, middle:], keys, values, causal=False)
                late = merged((out[:, :, middle:], lse[:, :, middle:]), late)
                out, lse = (torch.cat([x[:, :, :middle], y], 2) for x, y in zip((out, lse), late, strict=True))
        return self.whole(out)

    def whole(self, out: torch.Tensor) -> torch.Tensor:
        parts = [torch.empty_like(out) for _ in range(self.ranks)]
        dist.all_gather(parts, out.contiguous(), group=self.group)
        halves = [part.chunk(2, 2) for part in parts]
        return torch.cat([*(first for first, _ in halves), *(second for _, second in reversed(halves))], 2)


def verdict(ranks: int, half: int = 0) -> gg.Verdict | None:
    return gg.verify(
        Attention(),
        lambda mesh: Zigzag(mesh.get_group("cp"), half),
        tuple(gg.tensor(BATCH, HEADS, TOKENS, WIDTH) for _ in range(3)),
        mesh={"cp": ranks},
        out_relations="replicate",
        grads=False,
    ).verdict


@pytest.mark.parametrize("ranks", [2, 4])
def test_parts_of_a_causal_softmax_are_merged(ranks: int) -> None:
    assert verdict(ranks) is gg.Verdict.REFINES


def test_keys_of_the_wrong_chunk() -> None:
    assert verdict(2, half=1) is gg.Verdict.BROKEN


def summed(x: torch.Tensor, op: Any = dist.ReduceOp.SUM) -> torch.Tensor:
    x = x.clone()
    dist.all_reduce(x, op=op)
    return x


@pytest.mark.parametrize(("keys", "ranks"), [(4, 2), (4, 3), (2, 3)])
@pytest.mark.parametrize(("weighed", "expected"), [(True, gg.Verdict.REFINES), (False, gg.Verdict.BROKEN)])
def test_keys_of_which_the_last_ranks_may_have_none(keys: int, ranks: int, weighed: bool, expected: gg.Verdict) -> None:
    def impl(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        out, lse = attend(q, k, v, causal=False)
        weight = (lse - summed(lse, dist.ReduceOp.MAX)).exp()
        return summed(out * weight) / (summed(weight) if weighed else weight)

    report = gg.verify(
        lambda q, k, v: attend(q, k, v, causal=False)[0],
        lambda mesh: impl,
        (gg.tensor(2, WIDTH), gg.tensor(keys, WIDTH), gg.tensor(keys, 3)),
        mesh={"cp": ranks},
        in_relations=({"cp": Replicate()}, {"cp": Shard(0)}, {"cp": Shard(0)}),
        out_relations="replicate",
        grads=False,
    )
    assert report.verdict is expected


def masked(scores: torch.Tensor, allowed: torch.Tensor) -> Part:
    scores = scores.masked_fill(~allowed, float("-inf"))
    lse = scores.logsumexp(-1, keepdim=True)
    return (scores - lse).exp(), lse


def dealt(x: torch.Tensor, mesh: Any) -> torch.Tensor:
    return x[:, mesh.get_local_rank("cp") :: mesh.size()]


@pytest.mark.parametrize(("wrong", "expected"), [("", gg.Verdict.REFINES), ("own sum", gg.Verdict.BROKEN)])
@pytest.mark.parametrize("rows", [[[1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]], [[1, 1, 0, 1], [1, 1, 1, 1]]])
def test_masked_keys_that_are_dealt_out(rows: list[list[int]], wrong: str, expected: gg.Verdict) -> None:
    allowed = torch.tensor(rows).bool()

    def distributed(mesh: Any) -> Any:
        def run(scores: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
            weights, lse = masked(scores, dealt(allowed, mesh))
            every = [torch.empty_like(lse) for _ in range(mesh.size())]
            dist.all_gather(every, lse)
            merged = every[0] if wrong else torch.stack(every).logsumexp(0)
            out = (weights @ values) * (lse - merged).exp()
            dist.all_reduce(out)
            return out

        return run

    found = gg.verify(
        lambda scores, values: masked(scores, allowed)[0] @ values,
        distributed,
        (gg.tensor(*allowed.shape), gg.tensor(4, 5)),
        mesh={"cp": 2},
        shard_inputs=lambda inputs, mesh: (dealt(inputs[0], mesh), dealt(inputs[1].t(), mesh).t()),
        out_relations="replicate",
        grads=False,
    )
    assert found.verdict is expected
