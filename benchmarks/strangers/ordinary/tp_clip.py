"""Gradient clipping with sharded weights. The gradient norm is of the own shards only.

Rule: missing-reduction, nonlinear-on-partial
"""
import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard

import graphguard as gg

STEPS, BATCH, DIM, HIDDEN, LR, MAX = 2, 5, 4, 6, 0.1, 1.0


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad)
        return grad


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


def clip(grads, distributed):
    total = sum(g.square().sum() for g in grads)
    # fixed, insert: if distributed:
    # fixed, insert:     dist.all_reduce(total)
    norm = total.sqrt()  # fault
    scale = (MAX / (norm + 1e-6)).clamp(max=1.0)
    return [g * scale for g in grads]


def train(w1, w2, xs, ys, distributed=False):
    for x, y in zip(xs, ys):
        w1, w2 = w1.detach().requires_grad_(), w2.detach().requires_grad_()
        x = Copy.apply(x) if distributed else x
        out = torch.relu(x @ w1) @ w2
        out = Reduce.apply(out) if distributed else out
        (out - y).square().mean().backward()
        g1, g2 = clip([w1.grad, w2.grad], distributed)
        w1, w2 = w1 - LR * g1, w2 - LR * g2
    return w1.detach(), w2.detach()


@gg.check(mesh={"tp": 3})
def check(mesh):
    return gg.Refinement(
        train, lambda *a: train(*a, distributed=True),
        (gg.tensor(DIM, HIDDEN), gg.tensor(HIDDEN, DIM), gg.tensor(STEPS, BATCH, DIM), gg.tensor(STEPS, BATCH, DIM)),
        in_relations=({"tp": Shard(1)}, {"tp": Shard(0)}, {}, {}),
        out_relations=({"tp": Shard(1)}, {"tp": Shard(0)}),
        grads=False,
    )
