"""Dropout on a replicated activation in tensor parallelism. The seed is the rank's, so that the replicated dropout mask in TP differs.

Rule: process-dependent
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

BATCH, DIM, HIDDEN = 5, 4, 6


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class MLP(nn.Module):
    def __init__(self, group):
        super().__init__()
        self.group = group
        self.up = nn.Linear(DIM, HIDDEN // dist.get_world_size(group))
        self.down = nn.Linear(HIDDEN // dist.get_world_size(group), DIM, bias=False)

    def forward(self, x):
        torch.manual_seed(7 + dist.get_rank())  # fixed: torch.manual_seed(7)
        x = F.dropout(x, 0.25)
        h = F.gelu(self.up(Copy.apply(x, self.group)))
        return Reduce.apply(self.down(h), self.group)


@gg.check(mesh={"tp": 3})
def check(mesh):
    return gg.Same(MLP(mesh.get_group("tp")), (gg.tensor(BATCH, DIM),), out_relations="replicate")
