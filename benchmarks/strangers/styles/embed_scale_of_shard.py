"""Gemma's embedding, its columns split over the ranks, and gathered after the scale.

The mistake: the embedding is scaled by sqrt(weight.shape[1]) = 2 on a rank, by sqrt(8) in the specification: the shard's width is taken for the model's.

Rule: wrong-scale, wrong-relation
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

VOCAB, EMBED_DIM, FFN = 11, 8, 6


class GemmaEmbedding(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab, dim))
        self.embed_dim = dim

    def forward(self, ids):
        return F.embedding(ids, self.weight) * self.embed_dim**0.5


class GemmaStem(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedder = GemmaEmbedding(VOCAB, EMBED_DIM)
        self.gate = nn.Linear(EMBED_DIM, FFN, bias=False)
        self.down = nn.Linear(FFN, EMBED_DIM, bias=False)

    def forward(self, ids):
        h = self.embedder(ids)
        return h + self.down(F.gelu(self.gate(h)))


class ColumnParallelEmbedding(nn.Module):
    def __init__(self, weight, group):
        super().__init__()
        self.group = group
        self.world, self.rank = dist.get_world_size(group), dist.get_rank(group)
        self.embed_dim = weight.shape[1]
        self.weight = nn.Parameter(weight.detach().chunk(self.world, dim=1)[self.rank].clone())

    def forward(self, ids):
        local = F.embedding(ids, self.weight)
        local = local * self.weight.shape[1] ** 0.5  # fixed: local = local * self.embed_dim**0.5
        parts = [torch.empty_like(local) for _ in range(self.world)]
        dist.all_gather(parts, local, group=self.group)
        return torch.cat(parts, dim=-1)


class ParallelGemmaStem(nn.Module):
    def __init__(self, stem, group):
        super().__init__()
        self.group = group
        world, rank = dist.get_world_size(group), dist.get_rank(group)
        self.embedder = ColumnParallelEmbedding(stem.embedder.weight, group)
        self.gate = nn.Parameter(stem.gate.weight.detach().chunk(world)[rank].clone())
        self.down = nn.Parameter(stem.down.weight.detach().chunk(world, dim=1)[rank].clone())

    def forward(self, ids):
        h = self.embedder(ids)
        y = F.linear(F.gelu(F.linear(h, self.gate)), self.down)
        dist.all_reduce(y, group=self.group)
        return h + y


@gg.check(mesh={"tp": 2})
def check(mesh):
    stem = GemmaStem()
    return gg.Refinement(
        stem,
        ParallelGemmaStem(stem, mesh.get_group("tp")),
        (gg.tensor(3, 5, dtype=torch.int64, high=VOCAB),),
        out_relations="replicate",
        grads=False,
    )
