"""accelerate's loop as one program: what it is on one rank is its specification."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg
from graphguard.frameworks import accelerate

ROWS = {"dp": Shard(0)}


def mlp():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))


@gg.check(mesh={"dp": 2})
def gradients(mesh):
    step = accelerate.gradients(Accelerator(cpu=True), mlp(), lambda y: y.square().mean())
    return gg.Same(step, (gg.tensor(4, 8),), in_relations=ROWS)


@gg.check(mesh={"dp": 2})
def accumulated(mesh):
    model = mlp()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    step = accelerate.step(accelerator, model, optimizer, lambda y: y.square().mean(), clip=1.0)
    return gg.Same(step, (gg.tensor(4, 8), gg.tensor(4, 8)), in_relations=ROWS)
