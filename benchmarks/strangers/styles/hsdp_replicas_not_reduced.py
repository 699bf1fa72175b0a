"""Hybrid sharded data parallelism by hand: flat parameters, gathered, their gradients reduce-scattered and all-reduced.

The mistake: 'shard_grad' is averaged over 'shard' alone: over 'replicate' it is each rank's own.

Rule: gradient-not-reduced, missing-reduction
"""
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

DIM, HIDDEN, LR = 4, 6, 0.1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.fc1 = nn.Linear(DIM, HIDDEN)
        self.fc2 = nn.Linear(HIDDEN, DIM)

    def forward(self, x):
        return x + self.fc2(F.gelu(self.fc1(self.norm(x))))


def spec_step(model):
    def step(x, y):
        F.mse_loss(model(x), y).backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= LR * p.grad
        return dict(model.named_parameters())

    return step


class HSDPParam:
    def __init__(self, param, mesh):
        self.param = param
        self.shard_group, self.replicate_group = mesh.get_group("shard"), mesh.get_group("replicate")
        self.world = dist.get_world_size(self.shard_group)
        self.numel, self.shape = param.numel(), param.shape
        self.padding = -self.numel % self.world
        flat = F.pad(param.detach().flatten(), (0, self.padding))
        self.shard = flat.chunk(self.world)[dist.get_rank(self.shard_group)].clone()

    def unshard(self):
        flat = torch.empty(self.numel + self.padding)
        dist.all_gather_into_tensor(flat, self.shard, group=self.shard_group)
        self.param.data = flat[: self.numel].view(self.shape)

    def reduce_grad(self):
        grad = F.pad(self.param.grad.flatten(), (0, self.padding))
        shard_grad = torch.empty_like(self.shard)
        dist.reduce_scatter_tensor(shard_grad, grad, op=dist.ReduceOp.AVG, group=self.shard_group)  # fault
        # fixed, insert: dist.all_reduce(shard_grad, op=dist.ReduceOp.AVG, group=self.replicate_group)
        return shard_grad  # fault

    def step(self):
        self.shard = self.shard - LR * self.reduce_grad()


class HSDP:
    def __init__(self, model, mesh):
        self.model = model
        self.params = [HSDPParam(p, mesh) for p in model.parameters()]

    def train_step(self, x, y):
        for p in self.params:
            p.unshard()
        F.mse_loss(self.model(x), y).backward()  # fault
        for p in self.params:
            p.step()
            p.unshard()
        return dict(self.model.named_parameters())


@gg.check(mesh={"replicate": 2, "shard": 3})
def check(mesh):
    model = Net()
    x = gg.tensor(12, DIM)
    return gg.Refinement(
        spec_step(model),
        HSDP(copy.deepcopy(model), mesh).train_step,
        (x, x),
        in_relations={"replicate": Shard(0), "shard": Shard(0)},
        out_relations="replicate",
        grads=False,
    )
