"""Decoding with a key cache that is split over dcp, token t on rank t % dcp; parts are merged by their log-sum-exps.

The mistake: rank 1 holds 3 of the 7 valid tokens, and attends to 4: the length of a rank's cache is rounded up on every rank.

Rule: wrong-shard, wrong-relation
"""
import torch
import torch.distributed as dist
from torch import nn

import graphguard as gg

HIDDEN, HEADS, HEAD_DIM, SLOTS, LENGTH = 5, 2, 3, 8, 7


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(HIDDEN, HEADS * HEAD_DIM, bias=False)
        self.o_proj = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)

    def query(self, x):
        return self.q_proj(x).unflatten(-1, (HEADS, HEAD_DIM))

    def forward(self, x, key_cache, value_cache):
        k, v = key_cache[:LENGTH], value_cache[:LENGTH]
        scores = torch.einsum("bhd,shd->bhs", self.query(x), k) * HEAD_DIM**-0.5
        return self.o_proj(torch.einsum("bhs,shd->bhd", scores.softmax(-1), v).flatten(1))


def get_dcp_local_seq_len(length, world, rank):
    return (length + world - 1) // world  # fixed: return (length - rank + world - 1) // world


def cp_lse_ag_out_ar(out, lse, group):
    lses = [torch.empty_like(lse) for _ in range(dist.get_world_size(group))]
    dist.all_gather(lses, lse, group=group)
    total = torch.logsumexp(torch.stack(lses), dim=0)
    out = out * torch.exp(lse - total).unsqueeze(-1)
    dist.all_reduce(out, group=group)
    return out


class DCPAttention(Attention):
    def __init__(self, group):
        super().__init__()
        self.group = group
        self.world, self.rank = dist.get_world_size(group), dist.get_rank(group)

    def local_cache(self, cache):
        return cache[self.rank :: self.world]

    def forward(self, x, key_cache, value_cache):
        length = get_dcp_local_seq_len(LENGTH, self.world, self.rank)  # fault
        k, v = self.local_cache(key_cache)[:length], self.local_cache(value_cache)[:length]  # fault
        scores = torch.einsum("bhd,shd->bhs", self.query(x), k) * HEAD_DIM**-0.5
        out = torch.einsum("bhs,shd->bhd", scores.softmax(-1), v)
        out = cp_lse_ag_out_ar(out, scores.logsumexp(-1), self.group)
        return self.o_proj(out.flatten(1))


@gg.check(mesh={"dcp": 2})
def check(mesh):
    cache = gg.tensor(SLOTS, HEADS, HEAD_DIM)
    return gg.Refinement(
        Attention(),
        DCPAttention(mesh.get_group("dcp")),
        (gg.tensor(4, HIDDEN), cache, cache),
        out_relations="replicate",
        grads=False,
    )
