"""Ulysses: two key heads and four ranks: key heads are repeated before the all-to-all.

The mistake: key heads are repeated as 0 1 0 1, the ranks' query heads need 0 0 1 1: rank 1 gets key head 1 for query heads of key head 0.

Rule: wrong-shard, wrong-relation
"""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

HIDDEN, HEADS, KV_HEADS, HEAD_DIM = 5, 8, 2, 3


def sdpa(q, k, v):
    times = q.shape[2] // k.shape[2]
    k, v = k.repeat_interleave(times, dim=2), v.repeat_interleave(times, dim=2)
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * HEAD_DIM**-0.5
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)


def all_to_all_heads(x, group):
    """(batch, tokens / n, heads, dim) to (batch, tokens, heads / n, dim)"""
    world = dist.get_world_size(group)
    parts = torch.stack(x.chunk(world, dim=2)).contiguous()
    out = torch.empty_like(parts)
    dist.all_to_all_single(out, parts, group=group)
    return torch.cat(out.unbind(0), dim=1)


def all_to_all_tokens(x, group):
    """(batch, tokens, heads / n, dim) to (batch, tokens / n, heads, dim)"""
    world = dist.get_world_size(group)
    parts = torch.stack(x.chunk(world, dim=1)).contiguous()
    out = torch.empty_like(parts)
    dist.all_to_all_single(out, parts, group=group)
    return torch.cat(out.unbind(0), dim=2)


def repeat_kv(x, times):
    if times == 1:
        return x
    return x.repeat(1, 1, times, 1)  # fixed: return x.repeat_interleave(times, dim=2)


class Attention(nn.Module):
    def __init__(self, group=None):
        super().__init__()
        self.group = group
        self.q_proj = nn.Linear(HIDDEN, HEADS * HEAD_DIM, bias=False)
        self.k_proj = nn.Linear(HIDDEN, KV_HEADS * HEAD_DIM, bias=False)
        self.v_proj = nn.Linear(HIDDEN, KV_HEADS * HEAD_DIM, bias=False)
        self.o_proj = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)

    def forward(self, x):
        q, k, v = (p(x).unflatten(-1, (-1, HEAD_DIM)) for p in (self.q_proj, self.k_proj, self.v_proj))
        if self.group is None:
            return self.o_proj(sdpa(q, k, v).flatten(2))
        world = dist.get_world_size(self.group)
        times = max(world // KV_HEADS, 1)
        k, v = repeat_kv(k, times), repeat_kv(v, times)
        q, k, v = (all_to_all_heads(t, self.group) for t in (q, k, v))
        out = all_to_all_tokens(sdpa(q, k, v), self.group)
        return self.o_proj(out.flatten(2))


@gg.check(mesh={"sp": 4})
def check(mesh):
    return gg.Refinement(
        Attention(),
        Attention(mesh.get_group("sp")),
        (gg.tensor(2, 12, HIDDEN),),
        in_relations={"sp": Shard(1)},
        out_relations={"sp": Shard(1)},
        grads=False,
    )
