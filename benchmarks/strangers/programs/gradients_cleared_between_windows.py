"""A pipeline's stages are made ready anew for each length of a micro-batch, and that forgets the gradients of those before. NeMo Automodel.

Source: https://github.com/NVIDIA-NeMo/Automodel/pull/3530
Rule: wrong-relation
"""

import torch
import torch.distributed as dist
from torch import nn

import graphguard as gg

HIDDEN, INNER, LENGTHS = 3, 4, (5, 4, 2)


class Stage(nn.Module):
    """Half of the model."""

    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight.detach().clone())

    def forward(self, x):
        return torch.tanh(x @ self.weight)


def spec_step(first, second, tokens, target):
    stages = [Stage(first), Stage(second)]
    loss = (stages[1](stages[0](tokens)) - target).square().sum() / sum(LENGTHS)
    loss.backward()
    return {"first": stages[0].weight.grad, "second": stages[1].weight.grad}


class PipelineStage:
    """One rank's part of the model, and the shapes it sends and gets."""

    def __init__(self, submodule, group):
        self.submodule = submodule
        self.group = group
        self.stage_index, self.num_stages = dist.get_rank(group), dist.get_world_size(group)
        self.is_first, self.is_last = self.stage_index == 0, self.stage_index == self.num_stages - 1
        self.static_metadata = None
        self.seq_len = None

    def configure_metadata(self, seq_len):
        """Shapes that are known are not inferred by a run with empty data."""
        self.static_metadata = (seq_len, INNER)
        self.seq_len = seq_len

    def post_metadata_inference_cleanup(self):
        """Throws away the gradients that a run with empty data has left."""
        for parameter in self.submodule.parameters():
            parameter.grad = None  # near

    def forward_one_chunk(self, tokens):
        if self.is_first:
            received = tokens
        else:
            received = torch.empty(self.static_metadata)
            dist.recv(received, self.stage_index - 1, group=self.group)
            received.requires_grad_()
        output = self.submodule(received)
        if not self.is_last:
            dist.send(output.detach(), self.stage_index + 1, group=self.group)
        return received, output

    def backward_one_chunk(self, received, output, target):
        if self.is_last:
            loss = (output - target).square().sum() / sum(LENGTHS)
            loss.backward()
            dist.send(received.grad, self.stage_index - 1, group=self.group)
        else:
            grad = torch.empty(self.static_metadata)
            dist.recv(grad, self.stage_index + 1, group=self.group)
            output.backward(grad)


class AutoPipeline:
    def __init__(self, stage):
        self.stage = stage

    def initialize_pp_stages(self):
        self.stage.post_metadata_inference_cleanup()  # fixed: if self.stage.static_metadata is None: self.stage.post_metadata_inference_cleanup()

    def reset_pp_stage_shapes(self, seq_len):
        if seq_len != self.stage.seq_len:
            self.stage.configure_metadata(seq_len)
            self.initialize_pp_stages()  # fault

    def step(self, tokens, target):
        self.reset_pp_stage_shapes(tokens.shape[0])
        received, output = self.stage.forward_one_chunk(tokens)
        self.stage.backward_one_chunk(received, output, target)


def whole(grad, source, shape, group):
    """A stage's gradient on all ranks."""
    grad = torch.empty(shape) if grad is None else grad.clone()
    dist.broadcast(grad, source, group=group)
    return grad


def train_step(group):
    def step(first, second, tokens, target):
        rank = dist.get_rank(group)
        stage = PipelineStage(Stage(first if rank == 0 else second), group)
        pipeline = AutoPipeline(stage)
        for microbatch in zip(tokens.split(LENGTHS), target.split(LENGTHS), strict=True):
            pipeline.step(*microbatch)
        own = stage.submodule.weight.grad
        return {
            "first": whole(own if rank == 0 else None, 0, first.shape, group),
            "second": whole(own if rank == 1 else None, 1, second.shape, group),
        }

    return step


@gg.check(mesh={"pp": 2})
def check(mesh):
    count = sum(LENGTHS)
    inputs = (gg.tensor(HIDDEN, INNER), gg.tensor(INNER, HIDDEN), gg.tensor(count, HIDDEN), gg.tensor(count, HIDDEN))
    return gg.Refinement(spec_step, train_step(mesh.get_group("pp")), inputs, out_relations="replicate", grads=False)
