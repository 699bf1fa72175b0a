"""RMSNorm over a hidden dimension that is split over tensor-parallel ranks. The mean square is taken over the local part of the hidden dim.

Rule: missing-reduction, nonlinear-on-partial
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

BATCH, DIM, HIDDEN, OUT, EPS = 4, 5, 6, 7, 1e-6


class Sum(torch.autograd.Function):
    """Sums in both directions."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


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


class Net(nn.Module):
    def __init__(self, group=None):
        super().__init__()
        self.group = group
        size = 1 if group is None else dist.get_world_size(group)
        self.up = nn.Linear(DIM, HIDDEN // size)
        self.scale = nn.Parameter(torch.ones(HIDDEN // size))
        self.down = nn.Linear(HIDDEN // size, OUT, bias=False)

    def norm(self, h):
        square = h.square().sum(-1, keepdim=True)  # fault
        # fixed, insert: if self.group is not None:
        # fixed, insert:     square = Sum.apply(square, self.group)
        width = h.shape[-1]  # fixed: width = HIDDEN
        return h * torch.rsqrt(square / width + EPS) * self.scale  # fault

    def forward(self, x):
        if self.group is not None:
            x = Copy.apply(x, self.group)
        h = self.norm(F.silu(self.up(x)))
        y = self.down(h)
        if self.group is not None:
            y = Reduce.apply(y, self.group)
        return y


@gg.check(mesh={"tp": 3})
def check(mesh):
    return gg.Refinement(Net(), Net(mesh.get_group("tp")), (gg.tensor(BATCH, DIM),), out_relations="replicate")
