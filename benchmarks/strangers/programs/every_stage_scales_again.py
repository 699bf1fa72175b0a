"""A pipeline's stages each divide the gradient that goes back by the number of micro-batches. DeepSpeed.

Source: https://github.com/deepspeedai/DeepSpeed/pull/8154
Rule: wrong-scale
"""

from itertools import pairwise

import torch
import torch.distributed as dist
from torch import nn

import graphguard as gg

WIDTHS, SAMPLES, MICRO_BATCHES = (3, 5, 6, 7), 8, 4
STAGES = len(WIDTHS) - 1


class Stage(nn.Module):
    """One layer with its bias."""

    def __init__(self, weight, bias):
        super().__init__()
        self.weight = nn.Parameter(weight.detach().clone())
        self.bias = nn.Parameter(bias.detach().clone())

    def forward(self, x):
        return torch.tanh(x @ self.weight + self.bias)


def loss_fn(output, target):
    return (output - target).square().sum(-1).mean()


def spec_step(x, target, *tensors):
    """All samples at once."""
    stages = [Stage(weight, bias) for weight, bias in zip(tensors[::2], tensors[1::2], strict=True)]
    output = x
    for stage in stages:
        output = stage(output)
    loss = loss_fn(output, target)
    loss.backward()
    grads = {f"{i}.{name}": p.grad for i, stage in enumerate(stages) for name, p in stage.named_parameters()}
    return {"loss": loss.detach(), **grads}


def fill_and_drain():
    """A stage's instructions: all forward passes, then all backward passes."""
    forward = [("forward", micro_batch) for micro_batch in range(MICRO_BATCHES)]
    return forward + [("backward", micro_batch) for micro_batch in range(MICRO_BATCHES)]


class PipelineEngine:
    """This rank's stage, and what it has in flight."""

    def __init__(self, module, widths, group):
        self.module = module
        self.width_in, self.width_out = widths
        self.group = group
        self.stage_id, self.num_stages = dist.get_rank(group), dist.get_world_size(group)
        self.gradient_accumulation_steps = MICRO_BATCHES
        self.pipe_buffers = {}
        self.total_loss = torch.zeros(())

    def is_first_stage(self):
        return self.stage_id == 0

    def is_last_stage(self):
        return self.stage_id == self.num_stages - 1

    def recv(self, rows, width, source):
        received = torch.empty(rows, width)
        dist.recv(received, source, group=self.group)
        return received

    def scale_wrt_gas(self, value):
        return value / self.gradient_accumulation_steps

    def backward_prologue(self, output):
        """Gradients add up over the micro-batches; what is wanted is their mean."""
        steps = self.gradient_accumulation_steps
        if steps > 1:  # fixed: if steps > 1 and self.is_last_stage():
            output.register_hook(self.scale_wrt_gas)  # fault

    def exec_forward_pass(self, micro_batch, inputs, targets):
        rows = inputs[micro_batch].shape[0]
        if self.is_first_stage():
            received = inputs[micro_batch]
        else:
            received = self.recv(rows, self.width_in, self.stage_id - 1).requires_grad_()
        output = self.module(received)
        if self.is_last_stage():
            output = loss_fn(output, targets[micro_batch])
            self.total_loss = self.total_loss + self.scale_wrt_gas(output.detach())
        else:
            dist.send(output.detach(), self.stage_id + 1, group=self.group)
        self.pipe_buffers[micro_batch] = (received, output)

    def exec_backward_pass(self, micro_batch):
        received, output = self.pipe_buffers.pop(micro_batch)
        self.backward_prologue(output)
        if self.is_last_stage():
            output.backward()
        else:
            grad = self.recv(output.shape[0], self.width_out, self.stage_id + 1)
            output.backward(grad)
        if not self.is_first_stage():
            dist.send(received.grad, self.stage_id - 1, group=self.group)  # near

    def train_batch(self, x, target):
        inputs, targets = x.chunk(MICRO_BATCHES), target.chunk(MICRO_BATCHES)
        for instruction, micro_batch in fill_and_drain():
            if instruction == "forward":
                self.exec_forward_pass(micro_batch, inputs, targets)
            else:
                self.exec_backward_pass(micro_batch)


def whole(tensor, source, shape, group):
    """What one stage has, on all ranks."""
    tensor = torch.empty(shape) if tensor is None else tensor.clone()
    dist.broadcast(tensor, source, group=group)
    return tensor


def train_step(group):
    def step(x, target, *tensors):
        stage_id = dist.get_rank(group)
        module = Stage(*tensors[2 * stage_id : 2 * stage_id + 2])
        engine = PipelineEngine(module, WIDTHS[stage_id : stage_id + 2], group)
        engine.train_batch(x, target)
        result = {"loss": whole(engine.total_loss, STAGES - 1, (), group)}
        for i in range(STAGES):
            for name, tensor in (("weight", tensors[2 * i]), ("bias", tensors[2 * i + 1])):
                own = getattr(module, name).grad if i == stage_id else None
                result[f"{i}.{name}"] = whole(own, i, tensor.shape, group)
        return result

    return step


@gg.check(mesh={"pp": 3})
def check(mesh):
    tensors = []
    for width_in, width_out in pairwise(WIDTHS):
        tensors += [gg.tensor(width_in, width_out), gg.tensor(width_out)]
    batch = (gg.tensor(SAMPLES, WIDTHS[0]), gg.tensor(SAMPLES, WIDTHS[-1]))
    impl = train_step(mesh.get_group("pp"))
    return gg.Refinement(spec_step, impl, (*batch, *tensors), out_relations="replicate", grads=False)
