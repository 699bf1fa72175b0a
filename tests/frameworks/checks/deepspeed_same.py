"""DeepSpeed's engine as one program: what it is on one rank is its specification."""

import torch
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg
from graphguard.frameworks import deepspeed


@gg.check(mesh={"dp": 2}, params={"stage": [0, 1, 2]})
def zero(mesh, stage):
    model = nn.Sequential(nn.Linear(6, 10), nn.GELU(), nn.Linear(10, 6))
    engine = deepspeed.engine(model, torch.optim.Adam(model.parameters(), lr=0.01), stage=stage, batch=8 // mesh.size())
    step = deepspeed.step(engine, lambda y: y.square().mean())
    return gg.Same(step, (gg.tensor(8, 6),), in_relations={"dp": Shard(0)})
