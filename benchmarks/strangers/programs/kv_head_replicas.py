"""Fewer key heads than ranks: every rank loads the key head of the wrong replica group, in the manner of vLLM's QKVParallelLinear.

Source: a mistake of a kind that is reported of such code; no single report was looked up.
Rule: wrong-shard
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

HIDDEN, HEADS, KV_HEADS, HEAD_DIM = 6, 4, 2, 3


def attention(q, k, v):
    """(tokens, heads, dim), a group of query heads for each key head."""
    times = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(times, dim=1), v.repeat_interleave(times, dim=1)
    scores = torch.einsum("thd,shd->hts", q, k) * HEAD_DIM**-0.5
    return torch.einsum("hts,shd->thd", scores.softmax(-1), v).flatten(1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(HIDDEN, HEADS * HEAD_DIM, bias=False)
        self.k_proj = nn.Linear(HIDDEN, KV_HEADS * HEAD_DIM, bias=False)
        self.v_proj = nn.Linear(HIDDEN, KV_HEADS * HEAD_DIM, bias=False)
        self.o_proj = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)

    def forward(self, x):
        q = self.q_proj(x).unflatten(-1, (-1, HEAD_DIM))
        k = self.k_proj(x).unflatten(-1, (-1, HEAD_DIM))
        v = self.v_proj(x).unflatten(-1, (-1, HEAD_DIM))
        return self.o_proj(attention(q, k, v))


class QKVParallelLinear(nn.Module):
    """Queries, keys and values of the own heads in one weight; key heads are replicated where there are fewer than ranks."""

    def __init__(self, tp_rank, tp_size):
        super().__init__()
        self.tp_rank = tp_rank
        self.num_heads = HEADS // tp_size
        self.num_kv_heads = max(1, KV_HEADS // tp_size)
        self.num_kv_head_replicas = max(1, tp_size // KV_HEADS)
        self.q_size = self.num_heads * HEAD_DIM
        self.kv_size = self.num_kv_heads * HEAD_DIM
        self.weight = nn.Parameter(torch.empty(self.q_size + 2 * self.kv_size, HIDDEN))

    def weight_loader(self, loaded_weight, loaded_shard_id):
        if loaded_shard_id == "q":
            shard_offset, shard_size = 0, self.q_size
            shard_id = self.tp_rank
        else:
            shard_offset = self.q_size + (self.kv_size if loaded_shard_id == "v" else 0)
            shard_size = self.kv_size
            shard_id = self.tp_rank % self.num_kv_head_replicas  # fixed: shard_id = self.tp_rank // self.num_kv_head_replicas
        loaded_weight = loaded_weight.narrow(0, shard_id * shard_size, shard_size)
        self.weight.data[shard_offset : shard_offset + shard_size].copy_(loaded_weight)

    def forward(self, x):
        qkv = F.linear(x, self.weight)
        return qkv.split([self.q_size, self.kv_size, self.kv_size], dim=-1)


class ParallelAttention(nn.Module):
    def __init__(self, group):
        super().__init__()
        self.group = group
        tp_rank, tp_size = dist.get_rank(group), dist.get_world_size(group)
        self.qkv_proj = QKVParallelLinear(tp_rank, tp_size)
        self.o_proj = nn.Linear(HEADS * HEAD_DIM // tp_size, HIDDEN, bias=False)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (-1, HEAD_DIM)) for part in self.qkv_proj(x))
        y = self.o_proj(attention(q, k, v))
        dist.all_reduce(y, group=self.group)
        return y


@gg.check(mesh={"tp": 4})
def check(mesh):
    def load(state, impl, mesh):
        for shard_id in "qkv":
            impl.qkv_proj.weight_loader(state[f"{shard_id}_proj.weight"], shard_id)
        with torch.no_grad():
            impl.o_proj.weight.copy_(state["o_proj.weight"].chunk(4, dim=1)[mesh.get_local_rank("tp")])

    impl = ParallelAttention(mesh.get_group("tp"))
    return gg.Refinement(Attention(), impl, (gg.tensor(3, HIDDEN),), load=load, out_relations="replicate", grads=False)
