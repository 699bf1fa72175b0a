"""A batch norm in data parallelism. BatchNorm1d is not converted: statistics of the local batch.

Rule: missing-reduction, wrong-relation
"""
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

STEPS, BATCH, DIM, HIDDEN, OUT = 2, 8, 5, 3, 4


class SyncNorm(nn.Module):
    """Batch norm over the batches of all ranks, written by hand."""

    def __init__(self, features, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.eps = eps

    def forward(self, x):
        mean = mean_over_ranks(x.mean(0))
        var = mean_over_ranks((x - mean).square().mean(0))
        return (x - mean) * torch.rsqrt(var + self.eps) * self.weight + self.bias


class MeanOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x / dist.get_world_size()

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad)
        return grad / dist.get_world_size()


def mean_over_ranks(x):
    return MeanOverRanks.apply(x)


class Norm(nn.Module):
    def __init__(self, features, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.eps = eps

    def forward(self, x):
        mean = x.mean(0)
        var = (x - mean).square().mean(0)
        return (x - mean) * torch.rsqrt(var + self.eps) * self.weight + self.bias


def network(norm):
    return nn.Sequential(nn.Linear(DIM, HIDDEN), norm(HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, OUT))


def train(model, xs, ys, world):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        opt.zero_grad()
        F.mse_loss(model(xs[step]), ys[step]).backward()
        if world > 1:
            for p in model.parameters():
                dist.all_reduce(p.grad)
                p.grad /= world
        opt.step()
    return {n: p.detach() for n, p in model.named_parameters()}


@gg.check(mesh={"dp": 2})
def check(mesh):
    ref = network(Norm)
    model = network(Norm)  # fixed: model = network(SyncNorm)
    model.load_state_dict(ref.state_dict())
    return gg.Refinement(
        lambda x, y: train(ref, x, y, 1),
        lambda x, y: train(model, x, y, dist.get_world_size()),
        inputs=(gg.tensor(STEPS, BATCH, DIM), gg.tensor(STEPS, BATCH, OUT)),
        in_relations={"dp": Shard(1)},
        out_relations="replicate",
        grads=False,
    )
