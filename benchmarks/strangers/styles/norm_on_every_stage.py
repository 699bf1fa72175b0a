"""Two pipeline stages of a Llama-like model; the last one has the final norm and the head.

The mistake: the first stage applies 'norm' as well: only the last one must.

Rule: wrong-relation
"""
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

DIM, FFN, VOCAB, LAYERS, TOKENS = 4, 6, 9, 4, 5


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(DIM))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = RMSNorm()
        self.w1 = nn.Linear(DIM, FFN, bias=False)
        self.w2 = nn.Linear(FFN, DIM, bias=False)

    def forward(self, x):
        return x + self.w2(F.silu(self.w1(self.norm(x))))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = RMSNorm()
        self.lm_head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids):
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


class Stage(nn.Module):
    def __init__(self, model, group):
        super().__init__()
        self.group = group
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        self.is_first, self.is_last = self.rank == 0, self.rank == self.world - 1
        each = LAYERS // self.world
        model = copy.deepcopy(model)
        self.embed_tokens = model.embed_tokens
        self.layers = model.layers[self.rank * each : (self.rank + 1) * each]
        self.norm, self.lm_head = model.norm, model.lm_head

    def forward(self, ids):
        if self.is_first:
            x = self.embed_tokens(ids)
        else:
            x = torch.empty(TOKENS, DIM)
            dist.recv(x, group=self.group, group_src=self.rank - 1)
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)  # fixed:
        if self.is_last:  # fault
            # fixed, insert: x = self.norm(x)
            logits = self.lm_head(x)  # fault
        else:
            dist.send(x, group=self.group, group_dst=self.rank + 1)
            logits = torch.empty(TOKENS, VOCAB)
        dist.broadcast(logits, group=self.group, group_src=self.world - 1)
        return logits


@gg.check(mesh={"pp": 2})
def check(mesh):
    model = Llama()
    return gg.Refinement(
        model,
        Stage(model, mesh.get_group("pp")),
        (gg.tensor(TOKENS, dtype=torch.int64, high=VOCAB),),
        out_relations="replicate",
        grads=False,
    )
