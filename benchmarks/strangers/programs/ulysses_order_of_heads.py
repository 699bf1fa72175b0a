"""DeepSpeed-Ulysses: the exchange back puts the sequence chunks where the heads belong.

Source: https://github.com/deepspeedai/DeepSpeed/pull/8317
Rule: wrong-shard, wrong-relation
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

SEQUENCE, HEADS, HEAD_DIM = 6, 4, 3
HIDDEN = HEADS * HEAD_DIM


def local_attention(q, k, v):
    """(sequence, heads, dim)"""
    scores = torch.einsum("qhd,khd->hqk", q, k) * HEAD_DIM**-0.5
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v)


def single_all_to_all(x, scatter_idx, gather_idx, group):
    """Scatters one dim over the group and gathers the other one."""
    size = dist.get_world_size(group)
    if scatter_idx == 1:  # heads, on the way in
        sequence, heads, dim = x.shape
        x = x.reshape(sequence, size, heads // size, dim).transpose(0, 1).contiguous()
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x, group=group)
        return out.reshape(size * sequence, heads // size, dim)
    sequence, heads, dim = x.shape
    x = x.reshape(size, sequence // size, heads, dim).contiguous()
    out = torch.empty_like(x)
    dist.all_to_all_single(out, x, group=group)
    return out.permute(1, 2, 0, 3).reshape(sequence // size, size * heads, dim)  # fixed: return out.permute(1, 0, 2, 3).reshape(sequence // size, size * heads, dim)


class DistributedAttention(nn.Module):
    """Whole sequences of some heads inside, all heads of a part of the sequence outside."""

    def __init__(self, local_attn, group, scatter_idx=1, gather_idx=0):
        super().__init__()
        self.local_attn = local_attn
        self.spg = group
        self.scatter_idx = scatter_idx
        self.gather_idx = gather_idx

    def forward(self, query, key, value):
        query_layer = single_all_to_all(query, self.scatter_idx, self.gather_idx, self.spg)
        key_layer = single_all_to_all(key, self.scatter_idx, self.gather_idx, self.spg)
        value_layer = single_all_to_all(value, self.scatter_idx, self.gather_idx, self.spg)
        context_layer = self.local_attn(query_layer, key_layer, value_layer)
        return single_all_to_all(context_layer, self.gather_idx, self.scatter_idx, self.spg)  # near


class Block(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.attention = attention
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False)
        self.out = nn.Linear(HIDDEN, HIDDEN, bias=False)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (HEADS, HEAD_DIM)) for part in self.qkv(x).chunk(3, dim=-1))
        return x + self.out(self.attention(q, k, v).flatten(1))


@gg.check(mesh={"sp": 2})
def check(mesh):
    impl = Block(DistributedAttention(local_attention, mesh.get_group("sp")))
    rows = {"sp": Shard(0)}
    return gg.Refinement(
        Block(local_attention), impl, (gg.tensor(SEQUENCE, HIDDEN),), in_relations=rows, out_relations=rows, grads=False
    )
