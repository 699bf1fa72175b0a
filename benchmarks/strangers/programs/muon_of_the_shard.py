"""Muon under automatic tensor parallelism: each rank makes its own rows of the momentum orthogonal, not the whole matrix. DeepSpeed.

Source: https://github.com/deepspeedai/DeepSpeed/issues/8437
Rule: wrong-relation, nonlinear-on-partial, wrong-shard
"""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

TOKENS, HIDDEN, INNER = 5, 3, 8
LR, MOMENTUM, NS_STEPS, EPS = 0.05, 0.95, 2, 1e-7
A, B, C = 3.4445, -4.775, 2.0315


def zeropower_via_newtonschulz(matrix):
    """The orthogonal factor of a matrix, nearly."""
    x = matrix / (matrix.square().sum().sqrt() + EPS)
    for _ in range(NS_STEPS):
        gram = x @ x.t()
        x = A * x + (B * gram + C * gram @ gram) @ x
    return x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(HIDDEN, INNER, bias=False)
        self.o_proj = nn.Linear(INNER, HIDDEN, bias=False)

    def forward(self, x):
        return x + self.o_proj(torch.tanh(self.q_proj(x)))


def muon_update(grad, momentum):
    momentum = MOMENTUM * momentum + (1 - MOMENTUM) * grad
    return (1 - MOMENTUM) * grad + MOMENTUM * momentum, momentum


def spec_step(model):
    def step(x, target, q_momentum, o_momentum):
        (model(x) - target).square().mean().backward()
        updated = {}
        for name, parameter, momentum in zip("qo", model.parameters(), (q_momentum, o_momentum), strict=True):
            update, momentum = muon_update(parameter.grad, momentum)
            updated[name] = parameter.detach() - LR * zeropower_via_newtonschulz(update)
            updated[f"{name}_momentum"] = momentum
        return updated

    return step


class CopyToGroup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class ReduceInGroup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class AutoTP(nn.Module):
    """The model with its weights cut: columns of the first, rows of the second."""

    def __init__(self, model, group):
        super().__init__()
        self.group = group
        rank, size = dist.get_rank(group), dist.get_world_size(group)
        self.q_weight = self.shard(model.q_proj.weight, 0, rank, size)
        self.o_weight = self.shard(model.o_proj.weight, 1, rank, size)

    @staticmethod
    def shard(weight, partition_dim, rank, size):
        parameter = nn.Parameter(weight.detach().chunk(size, dim=partition_dim)[rank].clone())
        parameter.partition_dim = partition_dim
        return parameter

    def forward(self, x):
        h = torch.tanh(CopyToGroup.apply(x, self.group) @ self.q_weight.t())
        return x + ReduceInGroup.apply(h @ self.o_weight.t(), self.group)


class MuonWithAuxAdam:
    """Only the matrices' part of it."""

    def __init__(self, parameters, group):
        self.parameters = list(parameters)
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def gathered(self, shard, dim):
        shards = [torch.empty_like(shard) for _ in range(self.size)]
        dist.all_gather(shards, shard.contiguous(), group=self.group)
        return torch.cat(shards, dim=dim)

    def orthogonalized(self, update, dim):
        return zeropower_via_newtonschulz(update)  # fixed: return zeropower_via_newtonschulz(self.gathered(update, dim)).chunk(self.size, dim=dim)[self.rank]

    def step(self, momenta):
        updated = {}
        for name, parameter, momentum in zip("qo", self.parameters, momenta, strict=True):
            update, momentum = muon_update(parameter.grad, momentum)
            update = self.orthogonalized(update, parameter.partition_dim)  # near
            updated[name] = parameter.detach() - LR * update
            updated[f"{name}_momentum"] = momentum
        return updated


def train_step(model, group):
    def step(x, target, q_momentum, o_momentum):
        engine = AutoTP(model, group)
        optimizer = MuonWithAuxAdam(engine.parameters(), group)
        (engine(x) - target).square().mean().backward()
        return optimizer.step((q_momentum, o_momentum))

    return step


@gg.check(mesh={"tp": 2})
def check(mesh):
    model, group = Model(), mesh.get_group("tp")
    batch = (gg.tensor(TOKENS, HIDDEN), gg.tensor(TOKENS, HIDDEN))
    inputs = (*batch, gg.tensor(INNER, HIDDEN), gg.tensor(HIDDEN, INNER))
    rows, columns = {"tp": Shard(0)}, {"tp": Shard(1)}
    return gg.Refinement(
        spec_step(model),
        train_step(copy.deepcopy(model), group),
        inputs,
        in_relations=({}, {}, rows, columns),
        out_relations=(rows, rows, columns, columns),
        grads=False,
    )
