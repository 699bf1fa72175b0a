"""A pipeline of three stages that are modules. Send of gradient to rank+1 instead of rank-1.

Rule: collective-mismatch
"""
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

STEPS, ROWS, DIMS = 2, 5, (4, 7, 6, 3)


def blocks():
    return nn.ModuleList(nn.Linear(DIMS[i], DIMS[i + 1]) for i in range(3))


def spec(model, xs, ys):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        opt.zero_grad()
        h = xs[step]
        for i, block in enumerate(model):
            h = block(h) if i == 2 else torch.relu(block(h))
        F.mse_loss(h, ys[step]).backward()
        opt.step()
    return dict(model.named_parameters())


class Stage:
    def __init__(self, block, rank, world):
        self.block, self.rank, self.world = block, rank, world
        self.opt = torch.optim.SGD(block.parameters(), lr=0.1)

    def forward(self, x):
        if self.rank > 0:
            x = torch.empty(ROWS, DIMS[self.rank])
            dist.recv(x, src=self.rank - 1)
            x.requires_grad_()
        self.input = x
        out = self.block(x)
        if self.rank < self.world - 1:
            out = torch.relu(out)
            dist.send(out.detach(), dst=self.rank + 1)
        return out

    def backward(self, out, target):
        if self.rank == self.world - 1:
            F.mse_loss(out, target).backward()
        else:
            grad = torch.empty_like(out)
            dist.recv(grad, src=self.rank + 1)
            out.backward(grad)
        if self.rank > 0:
            dist.send(self.input.grad, dst=self.rank + 1)  # fixed: dist.send(self.input.grad, dst=self.rank - 1)

    def train(self, xs, ys):
        for step in range(STEPS):
            self.opt.zero_grad()
            out = self.forward(xs[step])
            self.backward(out, ys[step])
            self.opt.step()
        return {f"{self.rank}.{n}": p for n, p in self.block.named_parameters()}


@gg.check(mesh={"pp": 3})
def check(mesh):
    model = blocks()
    ref = copy.deepcopy(model)
    rank = mesh.get_local_rank("pp")
    stage = Stage(model[rank], rank, mesh["pp"].size())
    return gg.Refinement(
        lambda x, y: spec(ref, x, y),
        stage.train,
        inputs=(gg.tensor(STEPS, ROWS, DIMS[0]), gg.tensor(STEPS, ROWS, DIMS[3])),
        grads=False,
    )
