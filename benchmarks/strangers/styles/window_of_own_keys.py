"""Sliding window attention over a ring, unnormalised sums kept as in the first version of ring attention.

The mistake: the positions of the keys of step 's' are computed from the own rank: the keys come from rank (rank - s) % cp.

Rule: wrong-shard, wrong-relation
"""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

HIDDEN, HEADS, HEAD_DIM, WINDOW = 5, 2, 3, 3


def window_mask(q_pos, k_pos):
    distance = q_pos[:, None] - k_pos[None, :]
    return (distance >= 0) & (distance < WINDOW)


def exp_scores(q, k, mask):
    return torch.einsum("bqhd,bkhd->bhqk", q, k).mul(HEAD_DIM**-0.5).exp() * mask


class LocalAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wqkv = nn.Linear(HIDDEN, 3 * HEADS * HEAD_DIM, bias=False)
        self.wo = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)

    def qkv(self, x):
        return (t.unflatten(-1, (HEADS, HEAD_DIM)) for t in self.wqkv(x).chunk(3, dim=-1))

    def forward(self, x):
        q, k, v = self.qkv(x)
        positions = torch.arange(x.shape[1])
        e = exp_scores(q, k, window_mask(positions, positions))
        out = torch.einsum("bhqk,bkhd->bqhd", e, v) / e.sum(-1).transpose(1, 2).unsqueeze(-1)
        return self.wo(out.flatten(2))


class RingLocalAttention(LocalAttention):
    def __init__(self, group):
        super().__init__()
        self.group = group
        self.world, self.rank = dist.get_world_size(group), dist.get_rank(group)

    def all_keys(self, t):
        parts = [torch.empty_like(t) for _ in range(self.world)]
        dist.all_gather(parts, t.contiguous(), group=self.group)
        return parts

    def forward(self, x):
        q, k, v = self.qkv(x)
        tokens = x.shape[1]
        keys, values = self.all_keys(k), self.all_keys(v)
        q_pos = self.rank * tokens + torch.arange(tokens)
        numerator, denominator = 0, 0
        for step in range(self.world):
            source = (self.rank - step) % self.world
            k_pos = self.rank * tokens + torch.arange(tokens)  # fixed: k_pos = source * tokens + torch.arange(tokens)
            e = exp_scores(q, keys[source], window_mask(q_pos, k_pos))  # fault
            numerator = numerator + torch.einsum("bhqk,bkhd->bqhd", e, values[source])
            denominator = denominator + e.sum(-1).transpose(1, 2).unsqueeze(-1)
        return self.wo((numerator / denominator).flatten(2))


@gg.check(mesh={"cp": 3})
def check(mesh):
    return gg.Refinement(
        LocalAttention(),
        RingLocalAttention(mesh.get_group("cp")),
        (gg.tensor(2, 6, HIDDEN),),
        in_relations={"cp": Shard(1)},
        out_relations={"cp": Shard(1)},
        grads=False,
    )
