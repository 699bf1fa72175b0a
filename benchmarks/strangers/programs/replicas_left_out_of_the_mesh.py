"""The layers with experts are sharded over a mesh that has lost its replicas' axis, so that these keep gradients of their own. NeMo Automodel's MoE parallelizer.

Source: https://github.com/NVIDIA-NeMo/Automodel/pull/3135
Rule: gradient-not-reduced, missing-reduction, wrong-group
"""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

HIDDEN, EXPERTS, INNER = 3, 2, 4
REPLICATE, SHARD = "dp_replicate", "dp_shard_cp"


class Block(nn.Module):
    """A dense layer, then all experts weighted by a gate."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.gate = nn.Parameter(torch.randn(EXPERTS, HIDDEN))
        self.experts = nn.Parameter(torch.randn(EXPERTS, HIDDEN, INNER))

    def forward(self, x):
        x = x + torch.tanh(self.dense(x))
        scores = (x @ self.gate.t()).softmax(-1)
        return torch.einsum("te,th,ehi->ti", scores, x, self.experts)


def spec_step(model):
    def step(x):
        model(x).square().mean().backward()
        return {
            "dense": model.dense.weight.grad.flatten(),
            "moe": torch.cat([model.gate.grad.flatten(), model.experts.grad.flatten()]),
        }

    return step


class MeshContext:
    def __init__(self, device_mesh):
        self.device_mesh = device_mesh

    def group(self, axis):
        return self.device_mesh.get_group(axis)


def get_fsdp_dp_axes(context):
    """With replicas, the axis of these first: the shards' gradients are reduced over it, too."""
    names = context.device_mesh.mesh_dim_names
    return (REPLICATE, SHARD) if REPLICATE in names else (SHARD,)


class FSDPParamGroup:
    """Some parameters as one flat shard over the last axis of a mesh, the same on the axis before it."""

    def __init__(self, parameters, context, axes):
        self.parameters = parameters
        self.shard_group = context.group(axes[-1])
        self.replicate_group = context.group(axes[0]) if len(axes) > 1 else None

    def reduce_grads(self):
        grad = torch.cat([parameter.grad.flatten() for parameter in self.parameters])
        shard = torch.empty(grad.numel() // dist.get_world_size(self.shard_group))
        dist.reduce_scatter_tensor(shard, grad, op=dist.ReduceOp.AVG, group=self.shard_group)
        if self.replicate_group is not None:
            dist.all_reduce(shard, op=dist.ReduceOp.AVG, group=self.replicate_group)  # near
        return shard


def apply_fsdp(model, context):
    dense = FSDPParamGroup([model.dense.weight], context, get_fsdp_dp_axes(context))
    moe_axes = (SHARD,)  # fixed: moe_axes = get_fsdp_dp_axes(context)
    moe = FSDPParamGroup([model.gate, model.experts], context, moe_axes)  # fault
    return {"dense": dense, "moe": moe}


def train_step(model, groups):
    def step(x):
        model(x).square().mean().backward()
        return {name: group.reduce_grads() for name, group in groups.items()}

    return step


@gg.check(mesh={REPLICATE: 2, SHARD: 3})
def check(mesh):
    model = Block()
    local = copy.deepcopy(model)
    impl = train_step(local, apply_fsdp(local, MeshContext(mesh)))
    batch = {REPLICATE: Shard(0), SHARD: Shard(0)}
    return gg.Refinement(
        spec_step(model), impl, (gg.tensor(12, HIDDEN),), in_relations=batch, out_relations={SHARD: Shard(0)}, grads=False
    )
