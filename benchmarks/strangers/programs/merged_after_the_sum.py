"""Blocks of attention are merged by their log-sums; the old log-sum is replaced before the output is merged with it.

Source: a mistake of a kind that is reported of such code; no single report was looked up.
Rule: wrong-relation
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

SEQUENCE, HEADS, DIM = 6, 2, 4


def attention(q, k, v):
    scores = torch.einsum("qhd,khd->hqk", q, k) * DIM**-0.5
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v)


def block_attention(q, k, v):
    """The output of a block of keys, and its log-sum: (queries, heads, dim), (queries, heads, 1)."""
    scores = torch.einsum("qhd,khd->qhk", q, k) * DIM**-0.5
    lse = torch.logsumexp(scores, dim=-1, keepdim=True)
    return torch.einsum("qhk,khd->qhd", (scores - lse).exp(), v), lse


class Merger:
    def __init__(self):
        self.out, self.lse = None, None

    def update(self, block_out, block_lse):
        if self.out is None:
            self.out, self.lse = block_out, block_lse
            return
        lse = torch.logaddexp(self.lse, block_lse)
        self.lse = lse  # fixed: pass
        self.out = (self.lse - lse).exp() * self.out + (block_lse - lse).exp() * block_out  # fault
        # fixed, insert: self.lse = lse


class RingAttention(nn.Module):
    def __init__(self, group):
        super().__init__()
        self.group = group

    def gathered(self, x):
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(self.group))]
        dist.all_gather(parts, x.contiguous(), group=self.group)
        return parts

    def forward(self, q, k, v):
        merger = Merger()
        rank, size = dist.get_rank(self.group), dist.get_world_size(self.group)
        keys, values = self.gathered(k), self.gathered(v)
        for step in range(size):
            block = (rank - step) % size
            merger.update(*block_attention(q, keys[block], values[block]))
        return merger.out


class Block(nn.Module):
    def __init__(self, attend):
        super().__init__()
        self.attend = attend
        self.qkv = nn.Linear(HEADS * DIM, 3 * HEADS * DIM, bias=False)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (HEADS, DIM)) for part in self.qkv(x).chunk(3, dim=-1))
        return x + self.attend(q, k, v).flatten(1)


@gg.check(mesh={"cp": 3})
def check(mesh):
    rows = {"cp": Shard(0)}
    impl = Block(RingAttention(mesh.get_group("cp")))
    return gg.Refinement(
        Block(attention), impl, (gg.tensor(SEQUENCE, HEADS * DIM),), in_relations=rows, out_relations=rows, grads=False
    )
