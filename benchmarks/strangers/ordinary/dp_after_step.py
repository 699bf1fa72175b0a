"""A hand-written loop with a learning rate schedule. Average_gradients(...) comes after optimizer.step().

Rule: gradient-not-reduced, dead-collective
"""
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

EPOCHS, BATCH, DIM, HIDDEN = 3, 10, 3, 7


def average_gradients(model, group):
    size = float(dist.get_world_size(group))
    for param in model.parameters():
        dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM, group=group)
        param.grad.data /= size


def run(model, xs, ys, group=None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    for epoch in range(EPOCHS):
        optimizer.zero_grad()
        output = model(xs[epoch])
        loss = F.mse_loss(output, ys[epoch])
        loss.backward()
        # fixed, insert: if group is not None:
        # fixed, insert:     average_gradients(model, group)
        optimizer.step()  # fault
        if group is not None:  # fixed:
            average_gradients(model, group)  # fixed:
        scheduler.step()
    return [p for p in model.parameters()]


@gg.check(mesh={"dp": 2})
def check(mesh):
    model = nn.Sequential(nn.Linear(DIM, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1))
    ref = copy.deepcopy(model)
    return gg.Refinement(
        lambda x, y: run(ref, x, y),
        lambda x, y: run(model, x, y, mesh.get_group("dp")),
        inputs=(gg.tensor(EPOCHS, BATCH, DIM), gg.tensor(EPOCHS, BATCH, 1)),
        in_relations={"dp": Shard(1)},
        out_relations="replicate",
        grads=False,
    )
