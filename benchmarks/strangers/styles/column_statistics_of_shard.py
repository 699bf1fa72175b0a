"""Adafactor's factored second moment for a weight whose rows are split over tp.

The mistake: the mean over dim 0 is taken of the own rows only ('w1.weight' is split there): it is needed over 'tp'.

Rule: missing-reduction, wrong-relation
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

DIM, FFN, LR, EPS = 5, 6, 0.1, 1e-3


class FBroadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class GAllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class MLP(nn.Module):
    def __init__(self, group=None):
        super().__init__()
        self.group = group
        world = 1 if group is None else dist.get_world_size(group)
        self.w1 = nn.Linear(DIM, FFN // world, bias=False)
        self.w2 = nn.Linear(FFN // world, DIM, bias=False)

    def forward(self, x):
        if self.group is None:
            return self.w2(torch.tanh(self.w1(x)))
        return GAllReduce.apply(self.w2(torch.tanh(self.w1(FBroadcast.apply(x, self.group)))), self.group)


class DistributedAdafactor:
    """``split``: the dim of each weight that is split over the group, by name."""

    def __init__(self, model, group=None, split=None):
        self.model, self.group, self.split = model, group, split or {}

    def mean(self, squared, dim, name):
        mean = squared.mean(dim=dim, keepdim=True)
        if self.group is not None and self.split[name] == dim:
            dist.all_reduce(mean, op=dist.ReduceOp.AVG, group=self.group)
        return mean

    @torch.no_grad()
    def step(self):
        for name, p in self.model.named_parameters():
            squared = p.grad.square() + EPS
            row = self.mean(squared, 1, name)
            column = squared.mean(dim=0, keepdim=True)  # fixed: column = self.mean(squared, 0, name)
            total = self.mean(row, 0, name)
            update = p.grad * (row * column / total).rsqrt()
            p -= LR * update


def step_of(model, optimizer):
    def step(x, target):
        F.mse_loss(model(x), target).backward()
        optimizer.step()
        return dict(model.named_parameters())

    return step


@gg.check(mesh={"tp": 2})
def check(mesh):
    group = mesh.get_group("tp")
    spec, impl = MLP(), MLP(group)
    x = gg.tensor(4, DIM)
    return gg.Refinement(
        step_of(spec, DistributedAdafactor(spec)),
        step_of(impl, DistributedAdafactor(impl, group, {"w1.weight": 0, "w2.weight": 1})),
        (x, x),
        out_relations={"w1.weight": {"tp": Shard(0)}, "w2.weight": {"tp": Shard(1)}},
        grads=False,
    )
