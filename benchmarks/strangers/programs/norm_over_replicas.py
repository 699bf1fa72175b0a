"""Hybrid sharding: the squares of the gradient's norm are summed over all ranks, where only those that share one copy hold different shards. VeOmni.

Source: https://github.com/ByteDance-Seed/VeOmni/pull/862
Rule: wrong-group, wrong-scale, extra-reduction
"""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

FEATURES, INNER, LR, MAX_NORM = 3, 4, 0.3, 0.05


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(FEATURES, INNER, bias=False)
        self.second = nn.Linear(INNER, 2, bias=False)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x))).square().mean()


def flat(tensors):
    return torch.cat([tensor.flatten() for tensor in tensors])


def clip_coefficient(total_norm):
    return (MAX_NORM / (total_norm + 1e-6)).clamp(max=1.0)


def spec_step(model):
    def step(x):
        model(x).backward()
        grad = flat(parameter.grad for parameter in model.parameters())
        total_norm = grad.square().sum().sqrt()
        return flat(model.parameters()).detach() - LR * clip_coefficient(total_norm) * grad, total_norm

    return step


class ParallelState:
    def __init__(self, mesh):
        self.dp_replicate_group = mesh.get_group("dp_replicate")
        self.dp_shard_group = mesh.get_group("dp_shard")
        self.dp_shard_rank = mesh.get_local_rank("dp_shard")
        self.dp_shard_size = mesh["dp_shard"].size()

    @property
    def fsdp_group(self):
        """All ranks that a parameter's copies and shards lie on."""
        return dist.group.WORLD

    def own(self, x):
        return x.chunk(self.dp_shard_size)[self.dp_shard_rank]


def fsdp_grad_norm_reduce_groups(state):
    return [state.fsdp_group]  # fixed: return [state.dp_shard_group]


def fsdp2_clip_grad_norm(grads, state):
    total = torch.stack([grad.square().sum() for grad in grads]).sum()
    for group in fsdp_grad_norm_reduce_groups(state):
        dist.all_reduce(total, op=dist.ReduceOp.SUM, group=group)  # fault
    total_norm = total.sqrt()
    clipped = [grad * clip_coefficient(total_norm) for grad in grads]
    return clipped, total_norm


class Trainer:
    def __init__(self, model, state):
        self.model = model
        self.state = state

    def reduced(self, grad):
        shard = torch.empty(grad.numel() // self.state.dp_shard_size)
        dist.reduce_scatter_tensor(shard, grad, op=dist.ReduceOp.AVG, group=self.state.dp_shard_group)
        dist.all_reduce(shard, op=dist.ReduceOp.AVG, group=self.state.dp_replicate_group)
        return shard

    def train_step(self, x):
        self.model(x).backward()
        grads = [self.reduced(flat(parameter.grad for parameter in self.model.parameters()))]
        grads, total_norm = fsdp2_clip_grad_norm(grads, self.state)
        shards = [self.state.own(flat(self.model.parameters()).detach())]
        return torch.cat([shard - LR * grad for shard, grad in zip(shards, grads, strict=True)]), total_norm


@gg.check(mesh={"dp_replicate": 3, "dp_shard": 2})
def check(mesh):
    model = Model()
    trainer = Trainer(copy.deepcopy(model), ParallelState(mesh))
    batch = {"dp_replicate": Shard(0), "dp_shard": Shard(0)}
    relations = ({"dp_shard": Shard(0)}, {})
    return gg.Refinement(
        spec_step(model), trainer.train_step, (gg.tensor(12, FEATURES),), in_relations=batch, out_relations=relations, grads=False
    )
