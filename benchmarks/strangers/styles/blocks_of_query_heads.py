"""Decoding from a paged cache: blocks by a block table, heads by tp; grouped queries.

The mistake: rank 1 reads head 2 of the caches, needs head 1: the start is made of the query heads.

Rule: wrong-shard
"""
import torch
import torch.distributed as dist
from torch import nn

import graphguard as gg

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, BLOCKS, BLOCK_SIZE, LENGTH = 5, 6, 3, 2, 4, 3, 5
BLOCK_TABLE = (2, 0)


def paged_attention(q, k_cache, v_cache):
    """(tokens, heads, dim) over the first tokens of the blocks of the table."""
    keys = torch.cat([k_cache[block] for block in BLOCK_TABLE])[:LENGTH]
    values = torch.cat([v_cache[block] for block in BLOCK_TABLE])[:LENGTH]
    times = q.shape[1] // keys.shape[1]
    keys, values = keys.repeat_interleave(times, dim=1), values.repeat_interleave(times, dim=1)
    probs = (torch.einsum("thd,shd->hts", q, keys) * HEAD_DIM**-0.5).softmax(-1)
    return torch.einsum("hts,shd->thd", probs, values).flatten(1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(HIDDEN, HEADS * HEAD_DIM, bias=False)
        self.o_proj = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)

    def forward(self, x, k_cache, v_cache):
        q = self.q_proj(x).unflatten(-1, (HEADS, HEAD_DIM))
        return self.o_proj(paged_attention(q, k_cache, v_cache))


class TPAttention(nn.Module):
    def __init__(self, attention, group):
        super().__init__()
        self.group = group
        self.world, self.rank = dist.get_world_size(group), dist.get_rank(group)
        self.num_heads, self.num_kv_heads = HEADS // self.world, KV_HEADS // self.world
        self.q_proj = nn.Parameter(attention.q_proj.weight.detach().chunk(self.world)[self.rank].clone())
        self.o_proj = nn.Parameter(attention.o_proj.weight.detach().chunk(self.world, dim=1)[self.rank].clone())

    def own_heads(self, cache):
        start = self.rank * self.num_heads % KV_HEADS  # fixed: start = self.rank * self.num_kv_heads
        return cache[:, :, start : start + self.num_kv_heads]  # fault

    def forward(self, x, k_cache, v_cache):
        q = (x @ self.q_proj.t()).unflatten(-1, (self.num_heads, HEAD_DIM))
        y = paged_attention(q, self.own_heads(k_cache), self.own_heads(v_cache)) @ self.o_proj.t()
        dist.all_reduce(y, group=self.group)
        return y


@gg.check(mesh={"tp": 3})
def check(mesh):
    attention = Attention()
    cache = gg.tensor(BLOCKS, BLOCK_SIZE, KV_HEADS, HEAD_DIM)
    return gg.Refinement(
        attention,
        TPAttention(attention, mesh.get_group("tp")),
        (gg.tensor(4, HIDDEN), cache, cache),
        out_relations="replicate",
        grads=False,
    )
