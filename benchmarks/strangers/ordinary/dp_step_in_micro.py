"""Gradient accumulation, a port to several ranks. Optimizer.step() (and sync) is indented into the micro-batch loop.

Rule: wrong-relation
"""
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

STEPS, ACCUM, MICRO, DIM, OUT = 2, 3, 8, 5, 6


def reference(model, xs, ys):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        opt.zero_grad()
        for i in range(ACCUM):
            loss = F.mse_loss(model(xs[step, i]), ys[step, i])
            (loss / ACCUM).backward()
        opt.step()
    return dict(model.named_parameters())


def distributed(model, xs, ys):
    world = dist.get_world_size()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        opt.zero_grad()
        for i in range(ACCUM):
            loss = F.mse_loss(model(xs[step, i]), ys[step, i])
            (loss / ACCUM).backward()
            for p in model.parameters():  # fixed:
                dist.all_reduce(p.grad)  # fixed:
                p.grad /= world  # fixed:
            opt.step()  # fixed:
        # fixed, insert: for p in model.parameters():
        # fixed, insert:     dist.all_reduce(p.grad)
        # fixed, insert:     p.grad /= world
        # fixed, insert: opt.step()
    return dict(model.named_parameters())


@gg.check(mesh={"dp": 4})
def check(mesh):
    model = nn.Sequential(nn.Linear(DIM, 7), nn.Tanh(), nn.Linear(7, OUT))
    ref = copy.deepcopy(model)
    return gg.Refinement(
        lambda x, y: reference(ref, x, y),
        lambda x, y: distributed(model, x, y),
        inputs=(gg.tensor(STEPS, ACCUM, MICRO, DIM), gg.tensor(STEPS, ACCUM, MICRO, OUT)),
        in_relations={"dp": Shard(2)},
        out_relations="replicate",
        grads=False,
    )
