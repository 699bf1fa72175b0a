"""A pipeline's schedule divides the gradients by its micro-batches whenever it has run; with gradient accumulation it divides what earlier runs have left once more. torchtitan.

Source: https://github.com/pytorch/torchtitan/pull/1732
Rule: wrong-scale, wrong-relation
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import nn

import graphguard as gg

WIDTHS, SAMPLES, LR = (4, 6, 3), 12, 0.3
STAGES = len(WIDTHS) - 1


@dataclass(frozen=True)
class JobConfig:
    local_batch_size: int = 4
    pipeline_parallel_microbatch_size: int = 2

    @property
    def gradient_accumulation_steps(self):
        return SAMPLES // self.local_batch_size

    @property
    def n_microbatches(self):
        return self.local_batch_size // self.pipeline_parallel_microbatch_size


class Layer(nn.Module):
    def __init__(self, weight, bias):
        super().__init__()
        self.weight = nn.Parameter(weight.detach().clone())
        self.bias = nn.Parameter(bias.detach().clone())

    def forward(self, x):
        return torch.tanh(x @ self.weight + self.bias)


def mse_loss(pred, labels):
    return (pred - labels).square().sum(-1).mean()


def rescale_accumulated_loss(unwrapped_loss_fn, accumulation_steps):
    """So that the sum over the steps is a mean."""

    def loss_fn(pred, labels):
        return unwrapped_loss_fn(pred, labels) / accumulation_steps

    return loss_fn


class PipelineStage:
    """A module, and the messages to the stages beside it."""

    def __init__(self, submod, group):
        self.submod = submod
        self.group = group
        self.stage_index, self.num_stages = dist.get_rank(group), dist.get_world_size(group)
        self.is_first, self.is_last = self.stage_index == 0, self.stage_index == self.num_stages - 1
        self.in_flight = []

    def peer(self, offset):
        return dist.get_global_rank(self.group, self.stage_index + offset)

    def receive(self, rows, width, offset):
        received = torch.empty(rows, width)
        dist.recv(received, self.peer(offset), group=self.group)
        return received

    def forward_one_chunk(self, arg):
        if not self.is_first:
            arg = self.receive(arg.shape[0], WIDTHS[self.stage_index], -1).requires_grad_()
        output = self.submod(arg)
        if not self.is_last:
            dist.send(output.detach(), self.peer(1), group=self.group)
        self.in_flight.append((arg, output))
        return output

    def backward_one_chunk(self, loss=None):
        arg, output = self.in_flight.pop(0)
        if self.is_last:
            loss.backward()
        else:
            output.backward(self.receive(output.shape[0], WIDTHS[self.stage_index + 1], 1))
        if not self.is_first:
            dist.send(arg.grad, self.peer(-1), group=self.group)

    def scale_grads(self, grad_scale_factor):
        for parameter in self.submod.parameters():
            if parameter.grad is not None:
                parameter.grad.div_(grad_scale_factor)  # fault


class ScheduleGPipe:
    """All micro-batches forward, then all back."""

    def __init__(self, stage, n_microbatches, loss_fn, scale_grads=True):
        self.stage, self.n_microbatches, self.loss_fn = stage, n_microbatches, loss_fn
        self.scale_grads = scale_grads

    def step(self, inputs, target):
        losses = []
        for arg, labels in zip(inputs.chunk(self.n_microbatches), target.chunk(self.n_microbatches), strict=True):
            output = self.stage.forward_one_chunk(arg)
            losses.append(self.loss_fn(output, labels) if self.stage.is_last else None)
        for loss in losses:
            self.stage.backward_one_chunk(loss=loss)
        if self.scale_grads:
            self.stage.scale_grads(self.n_microbatches)  # fault


def build_pipeline_schedule(job_config, stage, loss_fn):
    n_microbatches = job_config.n_microbatches
    accumulation_steps = job_config.gradient_accumulation_steps
    total_steps = accumulation_steps  # fixed: total_steps = accumulation_steps * n_microbatches
    return ScheduleGPipe(
        stage,
        n_microbatches=n_microbatches,
        loss_fn=rescale_accumulated_loss(loss_fn, total_steps),
        scale_grads=True,  # fixed: scale_grads=False,
    )


class Trainer:
    def __init__(self, job_config, submod, group):
        self.job_config = job_config
        self.stage = PipelineStage(submod, group)
        self.optimizer = torch.optim.SGD(submod.parameters(), lr=LR)
        self.pp_schedule = build_pipeline_schedule(job_config, self.stage, mse_loss)

    def forward_backward_step(self, inputs, labels):
        self.pp_schedule.step(inputs, labels)

    def train_step(self, inputs, labels):
        self.optimizer.zero_grad()
        size = self.job_config.local_batch_size
        for batch, batch_labels in zip(inputs.split(size), labels.split(size), strict=True):
            self.forward_backward_step(batch, batch_labels)
        self.optimizer.step()  # near


def gathered(own, stage, shape, group):
    """What one stage has, on all ranks."""
    tensor = own.detach().clone() if dist.get_rank(group) == stage else torch.empty(shape)
    dist.broadcast(tensor, dist.get_global_rank(group, stage), group=group)
    return tensor


def pipeline_step(job_config, group):
    def step(inputs, labels, *tensors):
        layers = [Layer(weight, bias) for weight, bias in zip(tensors[::2], tensors[1::2], strict=True)]
        own = layers[dist.get_rank(group)]
        Trainer(job_config, own, group).train_step(inputs, labels)
        result = {}
        for i, layer in enumerate(layers):
            result[f"layer{i}_weight"] = gathered(own.weight, i, layer.weight.shape, group)
            result[f"layer{i}_bias"] = gathered(own.bias, i, layer.bias.shape, group)
        return result

    return step


def spec_step(inputs, labels, *tensors):
    model = nn.Sequential(*[Layer(weight, bias) for weight, bias in zip(tensors[::2], tensors[1::2], strict=True)])
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    mse_loss(model(inputs), labels).backward()
    optimizer.step()
    return {f"layer{i}_{name}": p.detach() for i, layer in enumerate(model) for name, p in layer.named_parameters()}


@gg.check(mesh={"pp": 2})
def check(mesh):
    tensors = [tensor for width, out in pairwise(WIDTHS) for tensor in (gg.tensor(width, out), gg.tensor(out))]
    batch = (gg.tensor(SAMPLES, WIDTHS[0]), gg.tensor(SAMPLES, WIDTHS[-1]))
    impl = pipeline_step(JobConfig(), mesh.get_group("pp"))
    return gg.Refinement(spec_step, impl, (*batch, *tensors), out_relations="replicate", grads=False)
