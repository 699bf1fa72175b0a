"""Gradients are cleared after a step where ZeRO or half precision is on; with neither they add up from step to step. DeepSpeed.

Source: https://github.com/deepspeedai/DeepSpeed/pull/7839
Rule: wrong-relation
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

STEPS, SAMPLES, WIDTH, INNER, OUT, LR, MOMENTUM = 2, 8, 4, 5, 3, 0.1, 0.9
NAMES = ("up", "down")


@dataclass(frozen=True)
class Config:
    zero_stage: int = 0
    fp16_enabled: bool = False
    bf16_enabled: bool = True
    gradient_accumulation_steps: int = 2
    allreduce_bucket_size: int = 24


class Model(nn.Module):
    def __init__(self, up, down):
        super().__init__()
        self.up, self.down = nn.Parameter(up.detach().clone()), nn.Parameter(down.detach().clone())

    def forward(self, x):
        return torch.tanh(x @ self.up.t()) @ self.down.t()


def loss_fn(output, target):
    return (output - target).square().sum(-1).mean()


class Momentum:
    """SGD with momentum."""

    def __init__(self, parameters):
        self.parameters = list(parameters)
        self.buffers = [torch.zeros_like(parameter) for parameter in self.parameters]

    @torch.no_grad()
    def step(self):
        for parameter, buffer in zip(self.parameters, self.buffers, strict=True):
            buffer.mul_(MOMENTUM).add_(parameter.grad)
            parameter.sub_(LR * buffer)

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None


class Engine:
    """Runs a model over data-parallel ranks, and steps when enough has been accumulated."""

    def __init__(self, module, config, group):
        self.module, self.config, self.group = module, config, group
        self.dp_world_size = dist.get_world_size(group)
        self.optimizer = Momentum(module.parameters())
        self.micro_steps = 0

    def zero_optimization(self):
        return self.config.zero_stage > 0

    def is_gradient_accumulation_boundary(self):
        return (self.micro_steps + 1) % self.config.gradient_accumulation_steps == 0

    def buckets(self):
        """Gradients that are reduced with one call."""
        bucket, elements = [], 0
        for parameter in self.module.parameters():
            bucket.append(parameter)
            elements += parameter.numel()
            if elements >= self.config.allreduce_bucket_size:
                yield bucket
                bucket, elements = [], 0
        if bucket:
            yield bucket

    def allreduce_gradients(self):
        for bucket in self.buckets():
            flat = torch.cat([parameter.grad.reshape(-1) for parameter in bucket])
            flat.div_(self.dp_world_size)
            dist.all_reduce(flat, group=self.group)
            parts = flat.split([parameter.numel() for parameter in bucket])
            for parameter, part in zip(bucket, parts, strict=True):
                parameter.grad.copy_(part.view_as(parameter))

    def backward(self, loss):
        (loss / self.config.gradient_accumulation_steps).backward()
        if self.is_gradient_accumulation_boundary():
            self.allreduce_gradients()

    def _take_model_step(self):
        self.optimizer.step()
        if self.zero_optimization() or self.config.fp16_enabled:  # fixed: if self.optimizer is not None:
            self.optimizer.zero_grad()  # fault

    def step(self):
        if self.is_gradient_accumulation_boundary():
            self._take_model_step()
        self.micro_steps += 1


def train(group):
    def impl(inputs, targets, *tensors):
        module = Model(*tensors)
        engine = Engine(module, Config(), group)
        for x, target in zip(inputs, targets, strict=True):
            halves = x.chunk(2), target.chunk(2)
            for micro_x, micro_target in zip(*halves, strict=True):
                engine.backward(loss_fn(module(micro_x), micro_target))
                engine.step()
        return {name: parameter.detach() for name, parameter in module.named_parameters()}

    return impl


def spec(inputs, targets, *tensors):
    module = Model(*tensors)
    optimizer = Momentum(module.parameters())
    for x, target in zip(inputs, targets, strict=True):
        loss_fn(module(x), target).backward()
        optimizer.step()
        optimizer.zero_grad()
    return {name: parameter.detach() for name, parameter in module.named_parameters()}


@gg.check(mesh={"dp": 2})
def check(mesh):
    batch = (gg.tensor(STEPS, SAMPLES, WIDTH), gg.tensor(STEPS, SAMPLES, OUT))
    tensors = (gg.tensor(INNER, WIDTH), gg.tensor(OUT, INNER))
    samples, whole = {"dp": Shard(1)}, {"dp": Replicate()}
    return gg.Refinement(
        spec,
        train(mesh.get_group("dp")),
        batch + tensors,
        in_relations=(samples, samples, whole, whole),
        out_relations="replicate",
        grads=False,
    )
