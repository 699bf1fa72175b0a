"""GPT-NeoX attention with column parallel fused heads, each head as [q|k|v].

The mistake: the attention scores are scaled by (HIDDEN // local heads) ** -0.5 = 6 ** -0.5, the specification by 3 ** -0.5: the number of heads is the rank's.

Rule: wrong-scale, wrong-relation
"""
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

import graphguard as gg


@dataclass
class NeoXConfig:
    hidden_size: int = 12
    num_attention_heads: int = 4


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config.num_attention_heads
        self.head_dim = config.hidden_size // config.num_attention_heads
        self.query_key_value = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, x):
        qkv = self.query_key_value(x).unflatten(-1, (self.heads, 3, self.head_dim))
        q, k, v = qkv.unbind(-2)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / self.head_dim**0.5
        return self.dense(torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v).flatten(2))


class TensorParallelAttention(nn.Module):
    def __init__(self, config, group):
        super().__init__()
        self.group = group
        self.world = dist.get_world_size(group)
        self.rank = dist.get_rank(group)
        self.hidden_size = config.hidden_size
        self.local_heads = config.num_attention_heads // self.world
        self.head_dim = config.hidden_size // config.num_attention_heads
        self.norm_factor = (config.hidden_size // self.local_heads) ** 0.5  # fixed: self.norm_factor = self.head_dim**0.5
        width = self.local_heads * self.head_dim
        self.qkv_weight = nn.Parameter(torch.empty(3 * width, config.hidden_size))
        self.qkv_bias = nn.Parameter(torch.empty(3 * width))
        self.dense_weight = nn.Parameter(torch.empty(config.hidden_size, width))
        self.dense_bias = nn.Parameter(torch.empty(config.hidden_size))

    @torch.no_grad()
    def load(self, state):
        self.qkv_weight.copy_(state["query_key_value.weight"].chunk(self.world)[self.rank])
        self.qkv_bias.copy_(state["query_key_value.bias"].chunk(self.world)[self.rank])
        self.dense_weight.copy_(state["dense.weight"].chunk(self.world, dim=1)[self.rank])
        self.dense_bias.copy_(state["dense.bias"])

    def forward(self, x):
        qkv = torch.nn.functional.linear(x, self.qkv_weight, self.qkv_bias)
        q, k, v = qkv.unflatten(-1, (self.local_heads, 3, self.head_dim)).unbind(-2)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / self.norm_factor  # fault
        context = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v).flatten(2)
        out = context @ self.dense_weight.t()
        dist.all_reduce(out, group=self.group)
        return out + self.dense_bias


@gg.check(mesh={"tp": 2})
def check(mesh):
    config = NeoXConfig()
    return gg.Refinement(
        Attention(config),
        TensorParallelAttention(config, mesh.get_group("tp")),
        (gg.tensor(2, 5, config.hidden_size),),
        load=lambda state, impl, mesh: impl.load(state),
        out_relations="replicate",
        grads=False,
    )
