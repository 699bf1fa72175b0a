"""Gradient accumulation. Sync before the backward of the last micro-batch.

Rule: missing-reduction, gradient-not-reduced
"""
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

STEPS, ACCUM, MICRO, DIM, OUT = 2, 3, 4, 5, 6


def sync(model):
    for p in model.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)


def train(model, xs, ys, distributed):
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(STEPS):
        opt.zero_grad()
        for i in range(ACCUM):
            loss = F.mse_loss(model(xs[step, i]), ys[step, i]) / ACCUM
            if distributed and i == ACCUM - 1:  # fixed:
                sync(model)  # fixed:
            loss.backward()
            # fixed, insert: if distributed and i == ACCUM - 1:
            # fixed, insert:     sync(model)
        opt.step()
    return dict(model.named_parameters())


@gg.check(mesh={"dp": 2})
def check(mesh):
    model = nn.Sequential(nn.Linear(DIM, 7), nn.SiLU(), nn.Linear(7, OUT))
    ref = copy.deepcopy(model)
    return gg.Refinement(
        lambda x, y: train(ref, x, y, False),
        lambda x, y: train(model, x, y, True),
        inputs=(gg.tensor(STEPS, ACCUM, MICRO, DIM), gg.tensor(STEPS, ACCUM, MICRO, OUT)),
        in_relations={"dp": Shard(2)},
        out_relations="replicate",
        grads=False,
    )
