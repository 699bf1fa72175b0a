"""Data-parallel modules of PyTorch itself: fully sharded parameters, and gradients that are averaged while they come."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard

import graphguard as gg

WORDS, DIM, HIDDEN = 9, 4, 6

TOKENS = (gg.tensor(6, dtype=torch.int64, low=0, high=WORDS),)


class Model(nn.Module):
    """The specification: gives its own loss, a mean over the batch."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, DIM)
        self.up = nn.Linear(DIM, HIDDEN)
        self.down = nn.Linear(HIDDEN, 2)

    def loss(self, y):
        return y.square().mean()

    def forward(self, tokens):
        x = self.embedding(tokens)
        return self.loss(self.down(torch.relu(self.up(x))))


class MeanOverRanks(torch.autograd.Function):
    """The mean of a number over ranks; every rank takes its own gradient, since FSDP averages what the ranks give."""

    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x / dist.get_world_size()

    @staticmethod
    def backward(ctx, grad):
        return grad


class ShardedModel(Model):
    """The implementation: every rank has a part of the batch."""

    def loss(self, y):
        mean = y.square().mean()
        return MeanOverRanks.apply(mean)


@gg.check(mesh={"dp": 2})
def fully_sharded(mesh):
    impl = ShardedModel()
    fully_shard(impl.up, mesh=mesh["dp"])
    fully_shard(impl, mesh=mesh["dp"])
    return gg.Refinement(Model(), impl, TOKENS, in_relations={"dp": Shard(0)}, out_relations="replicate")


class Replica(Model):
    """The implementation by hand: every parameter's gradient is averaged by a hook, as DDP does it."""

    def __init__(self):
        super().__init__()
        for parameter in self.parameters():
            parameter.register_hook(self.averaged)

    def averaged(self, grad):
        grad = grad.clone()
        dist.all_reduce(grad)
        return grad / dist.get_world_size()

    def loss(self, y):
        mean = y.square().mean()
        return MeanOverRanks.apply(mean)


@gg.check(mesh={"dp": 2})
def replicated(mesh):
    return gg.Refinement(Model(), Replica(), TOKENS, in_relations={"dp": Shard(0)}, out_relations="replicate")
