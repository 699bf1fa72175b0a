"""Decoding after a context-parallel prefill: the cache is split, the new token belongs to the last rank.

The mistake: the new token's key and value are appended on every rank of 'cp': they count cp = 2 times in the merged softmax.

Rule: wrong-scale, extra-reduction, wrong-relation
"""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

HIDDEN, HEADS, HEAD_DIM = 5, 2, 3


class DecodeAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(HIDDEN, 3 * HEADS * HEAD_DIM, bias=False)
        self.out = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)

    def project(self, x):
        return (t.unflatten(-1, (HEADS, HEAD_DIM)) for t in self.qkv(x).chunk(3, dim=-1))

    def forward(self, x, k_cache, v_cache):
        q, k, v = self.project(x)
        keys, values = torch.cat([k_cache, k.unsqueeze(1)], 1), torch.cat([v_cache, v.unsqueeze(1)], 1)
        probs = (torch.einsum("bhd,bshd->bhs", q, keys) * HEAD_DIM**-0.5).softmax(-1)
        return x + self.out(torch.einsum("bhs,bshd->bhd", probs, values).flatten(1))


class SplitCache:
    def __init__(self, group, keys, values):
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        self.keys, self.values = keys, values

    @property
    def owns_next_token(self):
        return self.rank == self.world - 1

    def append(self, k, v):  # fault
        # fixed, insert: if not self.owns_next_token:
            # fixed, insert: return
        self.keys = torch.cat([self.keys, k.unsqueeze(1)], dim=1)  # fault
        self.values = torch.cat([self.values, v.unsqueeze(1)], dim=1)  # fault


class ContextParallelDecodeAttention(DecodeAttention):
    def __init__(self, group):
        super().__init__()
        self.group = group

    def forward(self, x, k_cache, v_cache):
        q, k, v = self.project(x)
        cache = SplitCache(self.group, k_cache, v_cache)
        cache.append(k, v)  # fault
        weights = (torch.einsum("bhd,bshd->bhs", q, cache.keys) * HEAD_DIM**-0.5).exp()
        numerator = torch.einsum("bhs,bshd->bhd", weights, cache.values)
        denominator = weights.sum(-1, keepdim=True)
        dist.all_reduce(numerator, group=self.group)  # fault
        dist.all_reduce(denominator, group=self.group)
        return x + self.out((numerator / denominator).flatten(1))


@gg.check(mesh={"cp": 2})
def check(mesh):
    cache, split = gg.tensor(2, 6, HEADS, HEAD_DIM), {"cp": Shard(1)}
    return gg.Refinement(
        DecodeAttention(),
        ContextParallelDecodeAttention(mesh.get_group("cp")),
        (gg.tensor(2, HIDDEN), cache, cache),
        in_relations=({"cp": Replicate()}, split, split),
        out_relations="replicate",
        grads=False,
    )
