"""Sequence parallelism by all-reduce: each rank takes its own chunk of the partial sums first, so that different tokens are added up, in the manner of AReno.

Source: https://github.com/inclusionAI/AReno/pull/510
Rule: wrong-shard, wrong-relation
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

SEQUENCE, HIDDEN, INNER, RANKS = 6, 4, 15, 3


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x):
        return self.weight * x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()


class Block(nn.Module):
    def __init__(self, inner=INNER):
        super().__init__()
        self.norm = Norm()
        self.gate_proj = nn.Linear(HIDDEN, inner, bias=False)
        self.up_proj = nn.Linear(HIDDEN, inner, bias=False)
        self.down_proj = nn.Linear(inner, HIDDEN, bias=False)

    def mlp(self, x):
        return self.down_proj(torch.sigmoid(self.gate_proj(x)) * self.up_proj(x))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class SequenceRegion:
    """Whole sequences inside the tensor-parallel layers, a chunk of them outside."""

    def __init__(self, group):
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def all_gather(self, x):
        out = torch.empty(self.size * x.shape[0], *x.shape[1:])
        dist.all_gather_into_tensor(out, x.contiguous(), group=self.group)
        return out

    def narrow(self, x):
        length = x.shape[0] // self.size
        return x.narrow(0, self.rank * length, length)

    def reduce_scatter(self, x):
        x = self.narrow(x).contiguous()  # fixed: x = x.contiguous()
        dist.all_reduce(x, group=self.group)
        return x  # fixed: return self.narrow(x)


class ParallelBlock(Block):
    def __init__(self, group):
        super().__init__(INNER // dist.get_world_size(group))
        self.region = SequenceRegion(group)

    def forward(self, x):
        hidden = self.region.all_gather(self.norm(x))
        return x + self.region.reduce_scatter(self.mlp(hidden))


@gg.check(mesh={"tp": RANKS})
def check(mesh):
    rows = {"tp": Shard(0)}
    impl = ParallelBlock(mesh.get_group("tp"))
    return gg.Refinement(
        Block(), impl, (gg.tensor(SEQUENCE, HIDDEN),), in_relations=rows, out_relations=rows, grads=False
    )
