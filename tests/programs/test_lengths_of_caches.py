"""One new token beside a cache of keys and values that is divided over the ranks, of which each sequence fills as much as it is long."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

BATCH, SLOTS, WIDTH = 2, 6, 3


def whole(x: torch.Tensor, op: Any = dist.ReduceOp.SUM) -> torch.Tensor:
    x = x.clone()
    dist.all_reduce(x, op=op)
    return x


def scores(q: torch.Tensor, k: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    return torch.einsum("bd,bsd->bs", q, k).masked_fill(hidden, float("-inf"))


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    weights = scores(q, k, torch.arange(SLOTS) >= lengths[:, None]).softmax(-1)
    return torch.einsum("bs,bsd->bd", weights, v)


def merged(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    s = scores(q, k, hidden)
    weights = (s - whole(s.amax(-1, keepdim=True), dist.ReduceOp.MAX)).exp()
    return whole(torch.einsum("bs,bsd->bd", weights, v)) / whole(weights.sum(-1, keepdim=True))


def hidden(kind: str, lengths: torch.Tensor, size: int, rank: int, ranks: int) -> torch.Tensor:
    """Which of the rank's slots are empty, by places in the whole cache or by the lengths of the rank's own part."""
    slots, start = torch.arange(size), rank * size
    own = {
        "part": lambda: (lengths - start).clamp(0, size),
        "part less one": lambda: (lengths - start - 1).clamp(0, size),
        "part from below": lambda: (lengths - start).clamp(min=0),
        "dealt": lambda: (lengths - rank + ranks - 1) // ranks,
        "dealt from the first": lambda: (lengths + ranks - 1) // ranks,
        "dealt evenly": lambda: lengths // ranks,
    }
    if kind in own:
        return slots >= own[kind]()[:, None]
    places = {"place": slots + start, "dealt place": slots * ranks + rank, "own place": slots}
    return places[kind] >= lengths[:, None]


def verdict(kind: str, ranks: int) -> gg.Verdict | None:
    dealt = kind.startswith("dealt")  # slot after slot to the ranks in turn

    def impl(mesh: Any) -> Any:
        rank = mesh.get_local_rank("cp")

        def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            if dealt:
                k, v = k[:, rank::ranks], v[:, rank::ranks]
            return merged(q, k, v, hidden(kind, lengths, k.shape[1], rank, ranks))

        return run

    cache = {"cp": Replicate() if dealt else Shard(1)}
    return gg.verify(
        attention,
        impl,
        (
            gg.tensor(BATCH, WIDTH),
            gg.tensor(BATCH, SLOTS, WIDTH),
            gg.tensor(BATCH, SLOTS, WIDTH),
            gg.tensor(BATCH, dtype=torch.int64, low=1, high=SLOTS + 1),
        ),
        mesh={"cp": ranks},
        in_relations=({"cp": Replicate()}, cache, cache, {"cp": Replicate()}),
        out_relations="replicate",
        grads=False,
    ).verdict


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("kind", ["place", "part", "part from below", "dealt place", "dealt"])
def test_lengths(kind: str, ranks: int) -> None:
    assert verdict(kind, ranks) is gg.Verdict.REFINES


@pytest.mark.parametrize("kind", ["own place", "part less one", "dealt from the first", "dealt evenly"])
def test_wrong_lengths(kind: str) -> None:
    assert verdict(kind, 2) is gg.Verdict.BROKEN
