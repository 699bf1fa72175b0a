"""Llama of vLLM with a fused residual, in two pipeline stages.

The mistake: the 'residual' that the second stage receives is read nowhere: its first layer starts with the hidden states as residual.

Rule: wrong-relation, dead-collective
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

HIDDEN, FFN, LAYERS, TOKENS = 6, 10, 4, 5


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x, residual=None):
        if residual is not None:
            x = x + residual
        normed = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight
        return normed, x


class DecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm = RMSNorm()
        self.up_proj = nn.Linear(HIDDEN, FFN, bias=False)
        self.down_proj = nn.Linear(FFN, HIDDEN, bias=False)

    def forward(self, hidden_states, residual):
        hidden_states, residual = self.input_layernorm(hidden_states, residual)
        return self.down_proj(F.silu(self.up_proj(hidden_states))), residual


class Model(nn.Module):
    def __init__(self, first=0, last=LAYERS):
        super().__init__()
        self.layers = nn.ModuleDict({str(i): DecoderLayer() for i in range(first, last)})
        self.norm = RMSNorm()

    def run(self, hidden_states, residual):
        for layer in self.layers.values():
            hidden_states, residual = layer(hidden_states, residual)
        return hidden_states, residual

    def forward(self, hidden_states):
        hidden_states, residual = self.run(hidden_states, None)
        return self.norm(hidden_states, residual)[0]


class StageModel(Model):
    def __init__(self, group):
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        each = LAYERS // self.world
        super().__init__(self.rank * each, (self.rank + 1) * each)
        self.group = group

    def receive(self):
        intermediate = {name: torch.empty(TOKENS, HIDDEN) for name in ("hidden_states", "residual")}
        for tensor in intermediate.values():
            dist.recv(tensor, group=self.group, group_src=self.rank - 1)
        return intermediate

    def forward(self, inputs):
        if self.rank == 0:
            hidden_states, residual = inputs, None
        else:
            intermediate = self.receive()
            hidden_states, residual = intermediate["hidden_states"], None  # fixed: hidden_states, residual = intermediate["hidden_states"], intermediate["residual"]
        hidden_states, residual = self.run(hidden_states, residual)  # fault
        if self.rank < self.world - 1:
            for tensor in (hidden_states, residual):
                dist.send(tensor.contiguous(), group=self.group, group_dst=self.rank + 1)
            out = torch.empty(TOKENS, HIDDEN)
        else:
            out = self.norm(hidden_states, residual)[0].contiguous()
        dist.broadcast(out, group=self.group, group_src=self.world - 1)
        return out


@gg.check(mesh={"pp": 2})
def check(mesh):
    return gg.Refinement(
        Model(), StageModel(mesh.get_group("pp")), (gg.tensor(TOKENS, HIDDEN),), out_relations="replicate", grads=False
    )
