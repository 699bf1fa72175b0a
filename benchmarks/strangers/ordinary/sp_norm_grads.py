"""Sequence parallelism: norms run on a part of the tokens. Training loop. Norm weights' (and the row bias's) gradients are each of the rank's own tokens; sync list empty of norm.

Rule: gradient-not-reduced
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

STEPS, TOKENS, DIM, HIDDEN = 2, 9, 4, 6


class AllGather(torch.autograd.Function):
    """Tokens are gathered; gradients are reduce-scattered."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        out = x.new_empty(x.shape[0] * dist.get_world_size(group), x.shape[1])
        dist.all_gather_into_tensor(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_empty(grad.shape[0] // dist.get_world_size(ctx.group), grad.shape[1])
        dist.reduce_scatter_tensor(out, grad.contiguous(), group=ctx.group)
        return out, None


class ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        out = x.new_empty(x.shape[0] // dist.get_world_size(group), x.shape[1])
        dist.reduce_scatter_tensor(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_empty(grad.shape[0] * dist.get_world_size(ctx.group), grad.shape[1])
        dist.all_gather_into_tensor(out, grad.contiguous(), group=ctx.group)
        return out, None


class Layer(nn.Module):
    def __init__(self, group=None):
        super().__init__()
        self.group = group
        size = 1 if group is None else dist.get_world_size(group)
        self.norm = nn.LayerNorm(DIM)
        self.up = nn.Linear(DIM, HIDDEN // size)
        self.down = nn.Linear(HIDDEN // size, DIM, bias=False)

    def forward(self, x):
        h = self.norm(x)
        if self.group is not None:
            h = AllGather.apply(h, self.group)
        h = self.down(F.gelu(self.up(h)))
        if self.group is not None:
            h = ReduceScatter.apply(h, self.group)
        return x + h


class Training(nn.Module):
    def __init__(self, group=None):
        super().__init__()
        self.layer = Layer(group)
        self.group = group

    def forward(self, xs, ys):
        opt = torch.optim.SGD(self.parameters(), lr=0.2)
        for step in range(STEPS):
            opt.zero_grad()
            loss = (self.layer(xs[step]) - ys[step]).square().sum() / TOKENS
            loss.backward()  # fault
            # fixed, insert: if self.group is not None:
            # fixed, insert:     for p in self.layer.norm.parameters():
            # fixed, insert:         dist.all_reduce(p.grad, group=self.group)
            opt.step()
        return dict(self.named_parameters())


@gg.check(mesh={"tp": 3})
def check(mesh):
    shape = (STEPS, TOKENS, DIM)
    return gg.Refinement(
        Training(), Training(mesh.get_group("tp")), (gg.tensor(*shape), gg.tensor(*shape)),
        in_relations={"tp": Shard(1)}, grads=False,
    )
