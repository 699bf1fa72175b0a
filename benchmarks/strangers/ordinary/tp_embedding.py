"""A vocabulary-parallel embedding. Rows of foreign tokens are not set to zero before the sum.

Rule: extra-reduction, wrong-relation
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

BATCH, SEQ, VOCAB, DIM, OUT = 2, 5, 12, 4, 7


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.proj = nn.Linear(DIM, OUT)

    def forward(self, ids):
        return self.proj(self.embed(ids))


class ParallelModel(nn.Module):
    def __init__(self, group):
        super().__init__()
        self.group = group
        self.rows = VOCAB // dist.get_world_size(group)
        self.first = dist.get_rank(group) * self.rows
        self.embed = nn.Embedding(self.rows, DIM)
        self.proj = nn.Linear(DIM, OUT)

    def forward(self, ids):
        foreign = (ids < self.first) | (ids >= self.first + self.rows)
        local = (ids - self.first).masked_fill(foreign, 0)
        h = self.embed(local)  # fault
        # fixed, insert: h = h.masked_fill(foreign[..., None], 0.0)
        return self.proj(Reduce.apply(h, self.group))  # fault


@gg.check(mesh={"tp": 3})
def check(mesh):
    return gg.Refinement(
        Model(), ParallelModel(mesh.get_group("tp")), (gg.tensor(BATCH, SEQ, dtype=torch.int64, high=VOCAB),),
        out_relations="replicate",
    )
