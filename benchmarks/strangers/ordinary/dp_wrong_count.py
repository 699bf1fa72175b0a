"""Gradient accumulation with the count of something else. Loss / len(micro-batches of a step) is needed, divided by STEPS.

Rule: wrong-scale
"""
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

STEPS, ACCUM, MICRO, DIM, OUT = 2, 3, 10, 4, 7


def train(model, xs, ys):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        opt.zero_grad()
        for i in range(ACCUM):
            (F.mse_loss(model(xs[step, i]), ys[step, i]) / ACCUM).backward()
        opt.step()
    return dict(model.named_parameters())


class DataParallelTrainer:
    def __init__(self, model, group, accumulate):
        self.model, self.group = model, group
        self.accumulate = accumulate
        self.opt = torch.optim.SGD(model.parameters(), lr=0.1)

    def backward(self, x, y):
        loss = F.mse_loss(self.model(x), y)
        loss = loss / self.accumulate
        loss.backward()

    def average(self):
        for p in self.model.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=self.group)

    def run(self, xs, ys):
        for step in range(STEPS):
            self.opt.zero_grad()
            for i in range(ACCUM):
                self.backward(xs[step, i], ys[step, i])
            self.average()
            self.opt.step()
        return dict(self.model.named_parameters())


@gg.check(mesh={"dp": 5})
def check(mesh):
    model = nn.Sequential(nn.Linear(DIM, 6), nn.ReLU(), nn.Linear(6, OUT))
    ref = copy.deepcopy(model)
    trainer = DataParallelTrainer(model, mesh.get_group("dp"), STEPS)  # fixed: trainer = DataParallelTrainer(model, mesh.get_group("dp"), ACCUM)
    return gg.Refinement(
        lambda x, y: train(ref, x, y),
        trainer.run,
        inputs=(gg.tensor(STEPS, ACCUM, MICRO, DIM), gg.tensor(STEPS, ACCUM, MICRO, OUT)),
        in_relations={"dp": Shard(2)},
        out_relations="replicate",
        grads=False,
    )
