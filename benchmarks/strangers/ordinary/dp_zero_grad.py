"""zero_grad of another place than in the single-process script. Zero_grad stands before the loop, gradients of earlier steps are added up.

Rule: wrong-relation
"""
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

STEPS, BATCH, DIM, OUT = 3, 8, 5, 3


def single(model, xs, ys):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in zip(xs, ys):
        opt.zero_grad()
        F.mse_loss(model(x), y).backward()
        opt.step()
    return list(model.parameters())


def multi(model, xs, ys):
    world = dist.get_world_size()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    opt.zero_grad()  # fixed:
    for x, y in zip(xs, ys):  # fault
        # fixed, insert: opt.zero_grad()
        F.mse_loss(model(x), y).backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        opt.step()
    return list(model.parameters())


@gg.check(mesh={"dp": 2})
def check(mesh):
    model = nn.Sequential(nn.Linear(DIM, 6), nn.Tanh(), nn.Linear(6, OUT))
    ref = copy.deepcopy(model)
    return gg.Refinement(
        lambda x, y: single(ref, x, y),
        lambda x, y: multi(model, x, y),
        inputs=(gg.tensor(STEPS, BATCH, DIM), gg.tensor(STEPS, BATCH, OUT)),
        in_relations={"dp": Shard(1)},
        out_relations="replicate",
        grads=False,
    )
