"""ZeRO's reduction of gradients: they are divided before the reduce-scatter, which takes the mean as well, in the manner of DeepSpeed.

Source: a mistake of a kind that is reported of such code; no single report was looked up.
Rule: wrong-scale
"""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

LR, BETA = 0.1, 0.9


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4, bias=False)
        self.second = nn.Linear(4, 2, bias=False)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x))).square().mean()


def momentum_step(parameter, grad, momentum):
    momentum = BETA * momentum + grad
    return parameter - LR * momentum, momentum


def spec_step(model):
    def step(x, momentum):
        model(x).backward()
        flat = torch.cat([parameter.flatten() for parameter in model.parameters()])
        grad = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        return momentum_step(flat.detach(), grad, momentum)

    return step


class ZeroOptimizer:
    def __init__(self, model, group):
        self.model = model
        self.dp_process_group = group
        self.partition_count = dist.get_world_size(group)
        self.postscale_gradients = False

    def flatten(self, tensors):
        return torch.cat([tensor.flatten() for tensor in tensors])

    def average_tensor(self, tensor):
        if not self.postscale_gradients:
            tensor = tensor.div(self.partition_count)  # fixed: pass
        partition = torch.empty(tensor.numel() // self.partition_count)
        dist.reduce_scatter_tensor(partition, tensor, op=dist.ReduceOp.AVG, group=self.dp_process_group)  # near
        return partition

    def own(self, flat):
        return flat.chunk(self.partition_count)[dist.get_rank(self.dp_process_group)]

    def step(self, x, momentum):
        self.model(x).backward()
        grads = self.flatten([parameter.grad for parameter in self.model.parameters()])
        single_partition_grad = self.average_tensor(grads)
        flat = self.flatten([parameter.detach() for parameter in self.model.parameters()])
        return momentum_step(self.own(flat), single_partition_grad, momentum)


@gg.check(mesh={"dp": 4})
def check(mesh):
    model = Model()
    impl = ZeroOptimizer(copy.deepcopy(model), mesh.get_group("dp")).step
    rows = {"dp": Shard(0)}
    return gg.Refinement(
        spec_step(model), impl, (gg.tensor(8, 3), gg.tensor(20)), in_relations=rows, out_relations=rows, grads=False
    )
