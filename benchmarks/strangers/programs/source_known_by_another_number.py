"""A broadcast that is differentiated: the ranks' gradients are summed up at the source and are zero elsewhere; the source is told by its number among all ranks, and each rank compares that with its number in the group, so that in all groups but the first one nobody is the source. PyTorch's torch.distributed.nn.

Source: https://github.com/pytorch/pytorch/issues/130515
Rule: process-dependent, wrong-group, gradient-not-reduced, wrong-relation, missing-reduction
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

SAMPLES, TEXT, CONTEXT, HIDDEN, OUTPUTS = 10, 7, 5, 12, 4


class Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, src, group, tensor):
        ctx.src, ctx.group = src, group
        ctx.rank = dist.get_rank(group=group)  # fixed: ctx.rank = dist.get_rank()
        tensor = tensor.clone()
        dist.broadcast(tensor, src, group=group)
        return tensor

    @staticmethod
    def backward(ctx, grad_output):
        grad = grad_output.contiguous().clone()
        dist.reduce(grad, ctx.src, group=ctx.group)
        if ctx.src != ctx.rank:  # fault
            grad.zero_()
        return None, None, grad


class AllReduce(torch.autograd.Function):
    """The sum of partial results; its gradient is the same on all ranks."""

    @staticmethod
    def forward(ctx, group, tensor):
        tensor = tensor.clone()
        dist.all_reduce(tensor, group=group)
        return tensor

    @staticmethod
    def backward(ctx, grad_output):
        return None, grad_output


@dataclass(frozen=True)
class Topology:
    """Groups of tensor parallelism, side by side in data parallelism."""

    dp_group: Any = None
    tp_group: Any = None

    @property
    def parallel(self):
        return self.tp_group is not None

    @property
    def tp_size(self):
        return dist.get_world_size(self.tp_group) if self.parallel else 1

    @property
    def tp_rank(self):
        return dist.get_rank(self.tp_group) if self.parallel else 0

    @property
    def tp_source(self):
        return dist.get_global_rank(self.tp_group, 0)

    def own_part(self, tensor, dim):
        return tensor.chunk(self.tp_size, dim)[self.tp_rank].clone()

    def gather(self, tensor, dim):
        if not self.parallel:
            return tensor
        parts = [torch.empty_like(tensor) for _ in range(self.tp_size)]
        dist.all_gather(parts, tensor.contiguous(), group=self.tp_group)
        return torch.cat(parts, dim)


class ConditionedMLP(nn.Module):
    """One rank of a group encodes the text; the layers that read it are divided over the group."""

    def __init__(self, topology, state):
        super().__init__()
        self.topology = topology
        self.encoder = nn.Parameter(state["encoder"].clone())
        self.up = nn.Parameter(topology.own_part(state["up"], 0))
        self.down = nn.Parameter(topology.own_part(state["down"], 1))

    def encode(self, text):
        if not self.topology.parallel:
            return torch.tanh(text @ self.encoder.t())
        if self.topology.tp_rank == 0:
            context = torch.tanh(text @ self.encoder.t())
        else:
            context = torch.zeros(text.shape[0], self.encoder.shape[0], requires_grad=True)
        return Broadcast.apply(self.topology.tp_source, self.topology.tp_group, context)

    def forward(self, text):
        hidden = torch.nn.functional.gelu(self.encode(text) @ self.up.t())
        out = hidden @ self.down.t()
        return AllReduce.apply(self.topology.tp_group, out) if self.topology.parallel else out

    def full_state(self):
        """The weights as one rank has them; the encoder's are those of the rank that runs it."""
        topology, encoder = self.topology, self.encoder.detach().clone()
        if topology.parallel:
            dist.broadcast(encoder, topology.tp_source, group=topology.tp_group)
        return {
            "encoder": encoder,
            "up": topology.gather(self.up.detach(), 0),
            "down": topology.gather(self.down.detach(), 1),
        }


class Trainer:
    def __init__(self, model, topology, lr=0.3, steps=2):
        self.model, self.topology = model, topology
        self.lr, self.steps = lr, steps

    def average_over_replicas(self, grad):
        if self.topology.parallel:
            dist.all_reduce(grad, group=self.topology.dp_group)
            grad.div_(dist.get_world_size(self.topology.dp_group))
        return grad

    def optimizer_step(self):
        for parameter in self.model.parameters():
            grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.data.sub_(self.lr * self.average_over_replicas(grad))
            parameter.grad = None

    def train(self, text, target):
        for _ in range(self.steps):
            (self.model(text) - target).square().mean().backward()
            self.optimizer_step()
        return self.model.full_state()


@gg.check(mesh={"dp": 2, "tp": 3})
def check(mesh):
    state = {
        "encoder": torch.randn(CONTEXT, TEXT),
        "up": torch.randn(HIDDEN, CONTEXT),
        "down": torch.randn(OUTPUTS, HIDDEN),
    }
    one, many = Topology(), Topology(mesh.get_group("dp"), mesh.get_group("tp"))
    return gg.Refinement(
        Trainer(ConditionedMLP(one, copy.deepcopy(state)), one).train,
        Trainer(ConditionedMLP(many, state), many).train,
        (gg.tensor(SAMPLES, TEXT), gg.tensor(SAMPLES, OUTPUTS)),
        in_relations={"dp": Shard(0)},
        out_relations="replicate",
        grads=False,
    )
