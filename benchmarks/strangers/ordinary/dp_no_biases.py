"""Only matrices are synchronised. "if p.ndim > 1" leaves biases and norms out.

Rule: gradient-not-reduced
"""
import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

STEPS, BATCH, DIM, HIDDEN = 2, 9, 4, 5


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.up = nn.Linear(DIM, HIDDEN)
        self.down = nn.Linear(HIDDEN, DIM)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def sync_grads(model, group):
    world = dist.get_world_size(group)
    for name, p in model.named_parameters():
        if p.grad is not None and p.ndim > 1:  # fixed: if p.grad is not None:
            dist.all_reduce(p.grad, group=group)
            p.grad.div_(world)


def training_loop(model, x, y, group=None):
    opt = torch.optim.SGD(model.parameters(), lr=0.3)
    for step in range(STEPS):
        loss = (model(x[step]) - y[step]).abs().square().mean()
        loss.backward()
        if group is not None:
            sync_grads(model, group)
        opt.step()
        opt.zero_grad()
    return {n: p.detach() for n, p in model.named_parameters()}


@gg.check(mesh={"dp": 3})
def check(mesh):
    model = Block()
    ref = copy.deepcopy(model)
    group = mesh.get_group("dp")
    return gg.Refinement(
        lambda x, y: training_loop(ref, x, y),
        lambda x, y: training_loop(model, x, y, group),
        inputs=(gg.tensor(STEPS, BATCH, DIM), gg.tensor(STEPS, BATCH, DIM)),
        in_relations={"dp": Shard(1)},
        out_relations="replicate",
        grads=False,
    )
