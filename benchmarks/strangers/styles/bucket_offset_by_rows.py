"""Data parallelism with one flat bucket of gradients: averaged at once, and taken apart again.

The mistake: the offset in the bucket grows by len(p), the number of rows: 'fc1.bias' is read at 6, stands at 24.

Rule: wrong-shard, wrong-relation
"""
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

DIM, HIDDEN, LR = 4, 6, 0.1


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(DIM, HIDDEN)
        self.fc2 = nn.Linear(HIDDEN, 3)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class GradBucket:
    def __init__(self, params, group):
        self.params = list(params)
        self.group = group
        self.buffer = torch.zeros(sum(p.numel() for p in self.params))

    def pack(self):
        offset = 0
        for p in self.params:
            self.buffer[offset : offset + p.numel()] = p.grad.flatten()
            offset += p.numel()

    def unpack(self):
        offset = 0
        for p in self.params:
            p.grad.copy_(self.buffer[offset : offset + p.numel()].view_as(p))  # fault
            offset += len(p)  # fixed: offset += p.numel()

    def average(self):
        self.pack()
        dist.all_reduce(self.buffer, op=dist.ReduceOp.AVG, group=self.group)
        self.unpack()


def spec_step(model):
    def step(x, y):
        optimizer = torch.optim.SGD(model.parameters(), lr=LR)
        F.mse_loss(model(x), y).backward()
        optimizer.step()
        return dict(model.named_parameters())

    return step


def dp_step(model, group):
    bucket = GradBucket(model.parameters(), group)

    def step(x, y):
        optimizer = torch.optim.SGD(model.parameters(), lr=LR)
        F.mse_loss(model(x), y).backward()
        bucket.average()
        optimizer.step()
        return dict(model.named_parameters())

    return step


@gg.check(mesh={"dp": 2})
def check(mesh):
    model = MLP()
    return gg.Refinement(
        spec_step(model),
        dp_step(copy.deepcopy(model), mesh.get_group("dp")),
        (gg.tensor(8, DIM), gg.tensor(8, 3)),
        in_relations={"dp": Shard(0)},
        out_relations="replicate",
        grads=False,
    )
