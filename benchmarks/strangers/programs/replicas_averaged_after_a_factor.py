"""Gradients are divided by a factor that the user has set, when they are scattered over the shards; with replicas of the shards they are averaged over these besides, as if nothing had been set. FSDP2's hybrid sharding.

Source: https://github.com/pytorch/pytorch/issues/155903
Rule: wrong-scale, wrong-relation
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

SAMPLES, INPUTS, HIDDEN, OUTPUTS, STEPS = 30, 7, 11, 5, 2
LR, MOMENTUM = 0.4, 0.9


@dataclass(frozen=True)
class MeshInfo:
    """Shards within a group, replicas of them across another one."""

    shard_process_group: Any = None
    replicate_process_group: Any = None

    @property
    def shard_mesh_size(self):
        return 1 if self.shard_process_group is None else dist.get_world_size(self.shard_process_group)

    @property
    def shard_mesh_rank(self):
        return 0 if self.shard_process_group is None else dist.get_rank(self.shard_process_group)

    @property
    def replicate_mesh_size(self):
        return 1 if self.replicate_process_group is None else dist.get_world_size(self.replicate_process_group)


@dataclass(frozen=True)
class ReduceOp:
    """A sum whose result is multiplied."""

    mul_factor: float = 1.0

    @classmethod
    def avg(cls, size):
        return cls(1.0 / size)


SUM = ReduceOp()


def reduce_scatter(output, tensor, op, mesh_info):
    if mesh_info.shard_mesh_size == 1:
        output.copy_(tensor)
    else:
        dist.reduce_scatter_tensor(output, tensor, group=mesh_info.shard_process_group)
    output.mul_(op.mul_factor)


def all_reduce(tensor, op, mesh_info):
    if mesh_info.replicate_mesh_size > 1:
        dist.all_reduce(tensor, group=mesh_info.replicate_process_group)
        tensor.mul_(op.mul_factor)


class FSDPParam:
    """Rows of a parameter, padded so that all shards are alike."""

    def __init__(self, owner, name, mesh_info):
        self.owner, self.name, self.mesh_info = owner, name, mesh_info
        full = getattr(owner, name).detach()
        self.size = full.shape
        self.shard_rows = -(-full.shape[0] // mesh_info.shard_mesh_size)
        padding = self.shard_rows * mesh_info.shard_mesh_size - full.shape[0]
        self.padded = torch.cat([full, full.new_zeros(padding, *full.shape[1:])])
        self.sharded_param = self.padded.chunk(mesh_info.shard_mesh_size)[mesh_info.shard_mesh_rank].clone()
        self.momentum = torch.zeros_like(self.sharded_param)

    def all_gather(self):
        gathered = torch.empty_like(self.padded)
        if self.mesh_info.shard_mesh_size == 1:
            gathered.copy_(self.sharded_param)
        else:
            dist.all_gather_into_tensor(gathered, self.sharded_param, group=self.mesh_info.shard_process_group)
        return gathered[: self.size[0]]

    def unshard(self):
        setattr(self.owner, self.name, nn.Parameter(self.all_gather().clone()))

    def padded_grad(self):
        padded = torch.zeros_like(self.padded)
        padded[: self.size[0]] = getattr(self.owner, self.name).grad
        return padded


class FSDPParamGroup:
    def __init__(self, model, mesh_info):
        self.mesh_info = mesh_info
        modules = [module for module in model.modules() if isinstance(module, nn.Linear)]
        self.fsdp_params = [FSDPParam(module, name, mesh_info) for module in modules for name in ("weight", "bias")]
        self.reduce_scatter_reduce_op = None

    def set_reduce_scatter_divide_factor(self, factor):
        self.reduce_scatter_reduce_op = ReduceOp(1.0 / factor)

    def reduce_ops(self):
        shards, replicas = self.mesh_info.shard_mesh_size, self.mesh_info.replicate_mesh_size
        reduce_scatter_op = self.reduce_scatter_reduce_op or ReduceOp.avg(shards)
        all_reduce_op = ReduceOp.avg(replicas)  # fixed: all_reduce_op = SUM if self.reduce_scatter_reduce_op else ReduceOp.avg(replicas)
        return reduce_scatter_op, all_reduce_op

    def foreach_reduce(self):
        """The gradient of each shard."""
        reduce_scatter_op, all_reduce_op = self.reduce_ops()
        for fsdp_param in self.fsdp_params:
            sharded_grad = torch.empty_like(fsdp_param.sharded_param)
            reduce_scatter(sharded_grad, fsdp_param.padded_grad(), reduce_scatter_op, self.mesh_info)
            all_reduce(sharded_grad, all_reduce_op, self.mesh_info)  # near
            yield fsdp_param, sharded_grad

    def step(self):
        for fsdp_param, sharded_grad in self.foreach_reduce():
            fsdp_param.momentum.mul_(MOMENTUM).add_(sharded_grad)
            fsdp_param.sharded_param.sub_(LR * fsdp_param.momentum)


def train(model, mesh_info):
    """The loss is summed over samples; the factor is their number in all ranks' batches."""
    group = FSDPParamGroup(model, mesh_info)
    group.set_reduce_scatter_divide_factor(SAMPLES)

    def run(x, target):
        for _ in range(STEPS):
            for fsdp_param in group.fsdp_params:
                fsdp_param.unshard()
            (model(x) - target).square().sum().backward()
            group.step()
        return [fsdp_param.all_gather() for fsdp_param in group.fsdp_params]

    return run


@gg.check(mesh={"replicate": 2, "shard": 3})
def check(mesh):
    model = nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, OUTPUTS))
    hybrid = MeshInfo(mesh.get_group("shard"), mesh.get_group("replicate"))
    return gg.Refinement(
        train(copy.deepcopy(model), MeshInfo()),
        train(model, hybrid),
        (gg.tensor(SAMPLES, INPUTS), gg.tensor(SAMPLES, OUTPUTS)),
        in_relations={"replicate": Shard(0), "shard": Shard(0)},
        out_relations="replicate",
        grads=False,
    )
