"""Attention on a mesh of context and tensor parallelism: heads over tp, tokens over cp, keys gathered over cp.

The mistake: keys and values are gathered over 'tp': 'cp' is needed.

Rule: wrong-group
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

HIDDEN, HEADS, HEAD_DIM = 6, 4, 3


def attend(q, k, v):
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * HEAD_DIM**-0.5
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v).flatten(2)


class Attention(nn.Module):
    def __init__(self, heads=HEADS):
        super().__init__()
        self.wq = nn.Linear(HIDDEN, heads * HEAD_DIM, bias=False)
        self.wk = nn.Linear(HIDDEN, heads * HEAD_DIM, bias=False)
        self.wv = nn.Linear(HIDDEN, heads * HEAD_DIM, bias=False)
        self.wo = nn.Linear(heads * HEAD_DIM, HIDDEN, bias=False)

    def heads_of(self, x):
        return (w(x).unflatten(-1, (-1, HEAD_DIM)) for w in (self.wq, self.wk, self.wv))

    def forward(self, x):
        return self.wo(attend(*self.heads_of(x)))


class ParallelDims:
    def __init__(self, mesh):
        self.mesh = mesh

    @property
    def cp_group(self):
        return self.mesh.get_group("cp")

    @property
    def tp_group(self):
        return self.mesh.get_group("tp")


class ParallelAttention(Attention):
    def __init__(self, dims):
        super().__init__(HEADS // dist.get_world_size(dims.tp_group))
        self.dims = dims

    def gather_sequence(self, t):
        group = self.dims.tp_group  # fixed: group = self.dims.cp_group
        parts = [torch.empty_like(t) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, t.contiguous(), group=group)  # fault
        return torch.cat(parts, dim=1)

    def forward(self, x):
        q, k, v = self.heads_of(x)
        y = self.wo(attend(q, self.gather_sequence(k), self.gather_sequence(v)))
        dist.all_reduce(y, group=self.dims.tp_group)
        return y


@gg.check(mesh={"cp": 3, "tp": 2})
def check(mesh):
    return gg.Refinement(
        Attention(),
        ParallelAttention(ParallelDims(mesh)),
        (gg.tensor(2, 12, HIDDEN),),
        in_relations={"cp": Shard(1)},
        out_relations={"cp": Shard(1)},
        grads=False,
    )
