"""ZeRO-1 by hand: a flat buffer, gradients are reduce-scattered, every rank steps its part with Adam. The updated part is written into the own flat but not gathered.

Rule: wrong-relation
"""
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

STEPS, BATCH, DIM, HIDDEN, OUT = 2, 6, 4, 5, 7
LR, BETA = 0.1, 0.9


def network():
    return nn.Sequential(nn.Linear(DIM, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, OUT))


def spec(model, xs, ys):
    opt = torch.optim.SGD(model.parameters(), lr=LR, momentum=BETA)
    for step in range(STEPS):
        opt.zero_grad()
        F.mse_loss(model(xs[step]), ys[step]).backward()
        opt.step()
    return dict(model.named_parameters())


class ZeroOptimizer:
    def __init__(self, model, group):
        self.params = list(model.parameters())
        self.group = group
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        self.numel = sum(p.numel() for p in self.params)
        self.part = -(-self.numel // self.world)
        self.momentum = torch.zeros(self.part)

    def flatten(self, tensors):
        flat = torch.cat([t.reshape(-1) for t in tensors])
        return F.pad(flat, (0, self.part * self.world - self.numel))

    @torch.no_grad()
    def step(self):
        flat_grad = self.flatten([p.grad for p in self.params])
        grad = torch.empty(self.part)
        dist.reduce_scatter_tensor(grad, flat_grad, group=self.group)
        grad /= self.world
        flat = self.flatten(self.params)
        own = flat[self.rank * self.part : (self.rank + 1) * self.part].clone()
        self.momentum.mul_(BETA).add_(grad)
        own -= LR * self.momentum
        flat[self.rank * self.part : (self.rank + 1) * self.part] = own  # fixed: dist.all_gather_into_tensor(flat, own, group=self.group)
        self.write_back(flat)

    def write_back(self, flat):
        offset = 0
        for p in self.params:
            p.copy_(flat[offset : offset + p.numel()].view_as(p))
            offset += p.numel()


def impl(model, xs, ys, group):
    opt = ZeroOptimizer(model, group)
    for step in range(STEPS):
        model.zero_grad()
        F.mse_loss(model(xs[step]), ys[step]).backward()
        opt.step()
    return dict(model.named_parameters())


@gg.check(mesh={"dp": 3})
def check(mesh):
    model = network()
    ref = copy.deepcopy(model)
    return gg.Refinement(
        lambda x, y: spec(ref, x, y),
        lambda x, y: impl(model, x, y, mesh.get_group("dp")),
        inputs=(gg.tensor(STEPS, BATCH, DIM), gg.tensor(STEPS, BATCH, OUT)),
        in_relations={"dp": Shard(1)},
        out_relations="replicate",
        grads=False,
    )
