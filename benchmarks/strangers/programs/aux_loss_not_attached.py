"""The balancing loss rides on the gate's weights by an autograd function whose result is thrown away, so it has no gradient, in the manner of NeMo Automodel.

Source: https://github.com/NVIDIA-NeMo/Automodel/pull/1412
Rule: wrong-relation, gradient-not-reduced
"""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

DIM, EXPERTS, COEFFICIENT, LR = 4, 3, 0.02, 0.1


class MoEAuxLossAutoScaler(torch.autograd.Function):
    """Hands its first argument through; backward starts the second one's gradient as well."""

    @staticmethod
    def forward(ctx, output, aux_loss):
        ctx.save_for_backward(aux_loss)
        return output.clone()

    @staticmethod
    def backward(ctx, grad_output):
        (aux_loss,) = ctx.saved_tensors
        return grad_output, torch.ones_like(aux_loss)


class Gate(nn.Module):
    def __init__(self, group=None):
        super().__init__()
        self.group = group
        self.proj = nn.Linear(DIM, EXPERTS, bias=False)

    def aux_loss(self, scores):
        load = scores.detach().mean(0)
        if self.group is not None:
            dist.all_reduce(load, op=dist.ReduceOp.AVG, group=self.group)
        return COEFFICIENT * EXPERTS * (load * scores.mean(0)).sum()

    def forward(self, x):
        weights = self.proj(x).softmax(-1)
        return weights, self.aux_loss(weights)


class MoE(nn.Module):
    def __init__(self, group=None):
        super().__init__()
        self.gate = Gate(group)
        self.experts = nn.Parameter(torch.randn(EXPERTS, DIM, 2))

    def combine(self, x, weights):
        return torch.einsum("te,ted->td", weights, torch.einsum("ti,eid->ted", x, self.experts).relu())

    def forward(self, x):
        weights, aux_loss = self.gate(x)
        MoEAuxLossAutoScaler.apply(weights, aux_loss)  # fixed: weights = MoEAuxLossAutoScaler.apply(weights, aux_loss)
        return self.combine(x, weights)


def updated(model):
    return tuple(parameter.detach() - LR * parameter.grad for parameter in model.parameters())


def spec_step(model):
    def step(x):
        weights, aux_loss = model.gate(x)
        loss = model.combine(x, weights).square().mean() + aux_loss
        loss.backward()
        return updated(model)

    return step


def train_step(model, group):
    def step(x):
        model(x).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG, group=group)
        return updated(model)

    return step


@gg.check(mesh={"dp": 2})
def check(mesh):
    model, group = MoE(), mesh.get_group("dp")
    local = copy.deepcopy(model)
    local.gate.group = group
    rows = {"dp": Shard(0)}
    return gg.Refinement(
        spec_step(model), train_step(local, group), (gg.tensor(10, DIM),), in_relations=rows, out_relations="replicate", grads=False
    )
