"""Falcon: attention and MLP in parallel, one all-reduce for both.

The mistake: 'x' (the residual) is whole on every rank and is added before the all-reduce: it comes out tp = 2 times.

Rule: wrong-scale, extra-reduction
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

HIDDEN, HEADS, HEAD_DIM, FFN = 6, 4, 3, 10


class FalconConfig:
    hidden_size = HIDDEN
    num_attention_heads = HEADS
    head_dim = HEAD_DIM
    ffn_hidden_size = FFN
    new_decoder_architecture = True


def attend(q, k, v):
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * HEAD_DIM**-0.5
    causal = torch.ones(q.shape[1], k.shape[1]).tril().bool()
    probs = scores.masked_fill(~causal, float("-inf")).softmax(-1)
    return torch.einsum("bhqk,bkhd->bqhd", probs, v).flatten(2)


class FalconAttention(nn.Module):
    def __init__(self, config, world=1):
        super().__init__()
        width = config.num_attention_heads // world * config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.dense = nn.Linear(width, config.hidden_size, bias=False)

    def forward(self, x):
        q, k, v = (p(x).unflatten(-1, (-1, HEAD_DIM)) for p in (self.q_proj, self.k_proj, self.v_proj))
        return self.dense(attend(q, k, v))


class FalconMLP(nn.Module):
    def __init__(self, config, world=1):
        super().__init__()
        self.dense_h_to_4h = nn.Linear(config.hidden_size, config.ffn_hidden_size // world, bias=False)
        self.dense_4h_to_h = nn.Linear(config.ffn_hidden_size // world, config.hidden_size, bias=False)

    def forward(self, x):
        return self.dense_4h_to_h(F.gelu(self.dense_h_to_4h(x)))


class FalconDecoderLayer(nn.Module):
    def __init__(self, config, group=None):
        super().__init__()
        self.group = group
        world = dist.get_world_size(group) if group is not None else 1
        self.input_layernorm = nn.LayerNorm(config.hidden_size)
        self.self_attention = FalconAttention(config, world)
        self.mlp = FalconMLP(config, world)

    def forward(self, hidden_states):
        residual = hidden_states
        normed = self.input_layernorm(hidden_states)
        output = self.self_attention(normed) + self.mlp(normed)
        output = output + residual  # fixed:
        if self.group is not None:
            dist.all_reduce(output, group=self.group)
        return output  # fixed: return output + residual


@gg.check(mesh={"tp": 2})
def check(mesh):
    config = FalconConfig()
    return gg.Same(
        FalconDecoderLayer(config, mesh.get_group("tp")),
        (gg.tensor(2, 5, HIDDEN),),
        out_relations="replicate",
        grads=False,
    )
