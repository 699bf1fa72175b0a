"""The optimizer's shards are laid out for all data-parallel ranks, gradients are scattered inside one instance: trailing shards have no owner. Megatron-LM.

Source: https://github.com/NVIDIA/Megatron-LM/pull/6048
Rule: wrong-group, wrong-shard, wrong-relation
"""

import copy
import math
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

HIDDEN, INNER, STEPS = 3, 5, 2
LR, MOMENTUM, BUCKET_SIZE = 0.1, 0.9, 14


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear_fc1 = nn.Linear(HIDDEN, INNER)
        self.linear_fc2 = nn.Linear(INNER, HIDDEN)

    def forward(self, x):
        return self.linear_fc2(torch.tanh(self.linear_fc1(x)))


def spec_step(model):
    def step(batches):
        optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
        for batch in batches:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
        return {name: parameter.detach() for name, parameter in model.named_parameters()}

    return step


class ProcessGroupCollection:
    """All data-parallel ranks, those of one optimizer instance, and the ranks with the same shard of all instances."""

    def __init__(self, mesh):
        self.dp_cp = dist.group.WORLD
        self.intra_dist_opt = mesh.get_group("intra_dist_opt")
        self.inter_dist_opt = mesh.get_group("inter_dist_opt")


@dataclass
class PerBufferParamLayout:
    """Where each parameter lies in the flat buffer, and where the buckets do; ``num_shards`` divides every bucket."""

    param_index_map: dict
    bucket_indices: list
    num_shards: int


def compute_param_layout(parameters, num_shards):
    """Buckets are closed once they are large enough, and padded so that all shards are equal."""
    param_index_map, bucket_indices, names = {}, [], list(parameters)
    bucket_start = offset = 0
    for name in names:
        end = offset + parameters[name].numel()
        param_index_map[name] = (offset, end)
        offset = end
        if offset - bucket_start >= BUCKET_SIZE or name == names[-1]:
            offset = bucket_start + math.ceil((offset - bucket_start) / num_shards) * num_shards
            bucket_indices.append((bucket_start, offset))
            bucket_start = offset
    return PerBufferParamLayout(param_index_map, bucket_indices, num_shards)


class ParamAndGradBuffer:
    """Parameters and gradients in two flat tensors; the gradients are reduced bucket by bucket."""

    def __init__(self, parameters, layout, pgs):
        self.parameters, self.layout, self.pgs = parameters, layout, pgs
        self.gradient_scaling_factor = 1.0 / dist.get_world_size(pgs.dp_cp)
        self.param_data = self.flatten(parameters)
        self.grad_data = torch.zeros_like(self.param_data)

    def flatten(self, tensors):
        data = torch.zeros(self.layout.bucket_indices[-1][1])
        for name, (start, end) in self.layout.param_index_map.items():
            data[start:end] = tensors[name].detach().flatten()
        return data

    def shard_of(self, start, end):
        """What a reduce-scatter of the bucket leaves on this rank."""
        size = (end - start) // dist.get_world_size(self.pgs.intra_dist_opt)
        first = start + dist.get_rank(self.pgs.intra_dist_opt) * size
        return first, first + size

    def finish_grad_sync(self):
        self.grad_data = self.flatten({name: one.grad for name, one in self.parameters.items()})
        self.grad_data = self.grad_data * self.gradient_scaling_factor
        for start, end in self.layout.bucket_indices:
            first, last = self.shard_of(start, end)
            local = torch.empty(last - first)
            dist.reduce_scatter_tensor(local, self.grad_data[start:end].contiguous(), group=self.pgs.intra_dist_opt)
            dist.all_reduce(local, group=self.pgs.inter_dist_opt)
            self.grad_data[first:last] = local

    def start_param_sync(self):
        for start, end in self.layout.bucket_indices:
            first, last = self.shard_of(start, end)
            gathered = torch.empty(end - start)
            local = self.param_data[first:last].contiguous()
            dist.all_gather_into_tensor(gathered, local, group=self.pgs.intra_dist_opt)  # near
            self.param_data[start:end] = gathered
        with torch.no_grad():
            for name, (start, end) in self.layout.param_index_map.items():
                self.parameters[name].copy_(self.param_data[start:end].view_as(self.parameters[name]))


class DistributedOptimizer:
    """SGD with momentum on the shards that this rank owns."""

    def __init__(self, buffer):
        self.buffer = buffer
        rank = dist.get_rank(buffer.pgs.intra_dist_opt)
        self.ranges = [self.build_model_gbuf_range(bucket, rank) for bucket in buffer.layout.bucket_indices]
        self.momenta = [torch.zeros(last - first) for first, last in self.ranges]

    def build_model_gbuf_range(self, bucket, rank):
        """The layout has as many shards as it has been computed for; a rank takes that of its number."""
        start, end = bucket
        size = (end - start) // self.buffer.layout.num_shards  # near
        return start + rank * size, start + (rank + 1) * size

    def step(self):
        for index, (first, last) in enumerate(self.ranges):
            self.momenta[index] = MOMENTUM * self.momenta[index] + self.buffer.grad_data[first:last]
            self.buffer.param_data[first:last] -= LR * self.momenta[index]  # fault
        self.buffer.start_param_sync()


def wrap_model(model, pgs):
    parameters = dict(model.named_parameters())
    num_shards = dist.get_world_size(pgs.dp_cp)  # fixed: num_shards = dist.get_world_size(pgs.intra_dist_opt)
    return ParamAndGradBuffer(parameters, compute_param_layout(parameters, num_shards), pgs)


def train(model, pgs):
    def step(batches):
        buffer = wrap_model(model, pgs)
        optimizer = DistributedOptimizer(buffer)
        for batch in batches:
            model.zero_grad()
            model(batch).square().mean().backward()
            buffer.finish_grad_sync()
            optimizer.step()
        return {name: parameter.detach() for name, parameter in model.named_parameters()}

    return step


@gg.check(mesh={"inter_dist_opt": 2, "intra_dist_opt": 3})
def check(mesh):
    model = MLP()
    impl = train(copy.deepcopy(model), ProcessGroupCollection(mesh))
    samples = {"inter_dist_opt": Shard(1), "intra_dist_opt": Shard(1)}
    return gg.Refinement(
        spec_step(model), impl, (gg.tensor(STEPS, 12, HIDDEN),), in_relations=samples, out_relations="replicate", grads=False
    )
