"""Every rank takes its part of the global batch. Slice starts at rank instead of rank*local.

Rule: wrong-shard
"""
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

STEPS, BATCH, DIM, OUT = 2, 12, 5, 4


def local_batch(batch):
    rank, world = dist.get_rank(), dist.get_world_size()
    local = batch.shape[0] // world
    start = rank  # fixed: start = rank * local
    return batch[start : start + local]


def train(model, xs, ys, distributed):
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(STEPS):
        x, y = xs[step], ys[step]
        if distributed:
            x, y = local_batch(x), local_batch(y)
        loss = F.l1_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        if distributed:
            for p in model.parameters():
                dist.all_reduce(p.grad)
                p.grad /= dist.get_world_size()
        opt.step()
    return dict(model.named_parameters())


@gg.check(mesh={"dp": 3})
def check(mesh):
    model = nn.Sequential(nn.Linear(DIM, 7), nn.Sigmoid(), nn.Linear(7, OUT))
    ref = copy.deepcopy(model)
    return gg.Refinement(
        lambda x, y: train(ref, x, y, False),
        lambda x, y: train(model, x, y, True),
        inputs=(gg.tensor(STEPS, BATCH, DIM), gg.tensor(STEPS, BATCH, OUT)),
        out_relations="replicate",
        grads=False,
    )
