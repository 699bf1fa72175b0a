"""Documents that are packed into one sequence, found by where they end, over ranks that hold parts of the sequence."""

import itertools

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import Shard

import graphguard as gg

ENDS = (0, 3, 7, 8)


def document_by_document(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    cut = [tuple(t[:, start:end] for t in (q, k, v)) for start, end in itertools.pairwise(ENDS)]
    return torch.cat([F.scaled_dot_product_attention(*parts, is_causal=True) for parts in cut], 1)


def number(positions: torch.Tensor, how: str) -> torch.Tensor:
    """Of the document at each position."""
    if how == "bucketize":
        return torch.bucketize(positions, torch.tensor(ENDS), right=True) - 1
    return torch.searchsorted(torch.tensor(ENDS), positions, right=how == "right") - 1


def packed(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, how: str) -> torch.Tensor:
    size, rank = dist.get_world_size(), dist.get_rank()
    positions = torch.arange(q.shape[1])
    own = positions.chunk(size)[rank]
    seen = (own[:, None] >= positions) & (number(own, how)[:, None] == number(positions, how))
    return F.scaled_dot_product_attention(q[:, own], k, v, attn_mask=seen)


@pytest.mark.parametrize(
    ("how", "verdict"),
    [("right", gg.Verdict.REFINES), ("bucketize", gg.Verdict.REFINES), ("left", gg.Verdict.BROKEN)],
)
def test_attention_within_documents(how: str, verdict: gg.Verdict) -> None:
    report = gg.verify(
        document_by_document,
        lambda _: lambda *heads: packed(*heads, how),
        (gg.tensor(2, 8, 4),) * 3,
        mesh={"cp": 2},
        out_relations={"cp": Shard(1)},
        grads=False,
    )
    assert report.verdict is verdict, report
