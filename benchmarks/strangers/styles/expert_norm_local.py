"""Gradient clipping of a mixture of experts whose experts are split over ep.

The mistake: 'expert_sq' is the sum of squares of the own experts' gradients: a partial sum over 'ep' that is used as if it were whole.

Rule: missing-reduction, nonlinear-on-partial
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Replicate

import graphguard as gg

HIDDEN, FFN, EXPERTS, MAX_NORM, LR = 4, 3, 4, 0.5, 0.1


class ReduceSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class CopyIn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class GroupedExperts(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(number, HIDDEN, FFN))
        self.w2 = nn.Parameter(torch.empty(number, FFN, HIDDEN))

    def forward(self, x, gates):
        h = F.gelu(torch.einsum("th,ehf->etf", x, self.w1))
        return torch.einsum("etf,efh,te->th", h, self.w2, gates)


class MoE(nn.Module):
    def __init__(self, group=None):
        super().__init__()
        self.group = group
        self.ep = 1 if group is None else dist.get_world_size(group)
        self.ep_rank = 0 if group is None else dist.get_rank(group)
        self.router = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.experts = GroupedExperts(EXPERTS // self.ep)

    def forward(self, x):
        gates = self.router(x).softmax(-1)
        if self.group is None:
            return x + self.experts(x, gates)
        local = CopyIn.apply(gates, self.group).chunk(self.ep, dim=-1)[self.ep_rank]
        return x + ReduceSum.apply(self.experts(CopyIn.apply(x, self.group), local), self.group)


def is_expert(name):
    return name.startswith("experts.")


def sum_of_squares(grads):
    return torch.stack([g.square().sum() for g in grads]).sum()


@torch.no_grad()
def clip_grad_norm(model, max_norm, ep_group=None):
    named = list(model.named_parameters())
    dense_sq = sum_of_squares([p.grad for name, p in named if not is_expert(name)])
    expert_sq = sum_of_squares([p.grad for name, p in named if is_expert(name)])  # fault
    # fixed, insert: if ep_group is not None:
        # fixed, insert: dist.all_reduce(expert_sq, group=ep_group)
    total_norm = (dense_sq + expert_sq).sqrt()  # fault
    coefficient = torch.clamp(max_norm / (total_norm + 1e-6), max=1.0)
    for _, p in named:
        p.grad.mul_(coefficient)
    return total_norm


def step_of(model, group=None):
    def step(x, target):
        optimizer = torch.optim.SGD(model.parameters(), lr=LR)
        F.mse_loss(model(x), target).backward()
        clip_grad_norm(model, MAX_NORM, group)
        optimizer.step()
        return dict(model.named_parameters())

    return step


@gg.check(mesh={"ep": 2})
def check(mesh):
    group = mesh.get_group("ep")
    x = gg.tensor(5, HIDDEN)
    return gg.Same(step_of(MoE(group), group), (x, x), grads=False)
