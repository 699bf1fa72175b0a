"""A stage of a pipeline is wrapped for data parallelism, whose hooks reduce a gradient when it is accumulated; a schedule that splits the backward pass asks for the weights' gradients and adds them itself, so that no hook runs. PyTorch's zero-bubble schedules with DDP.

Source: https://github.com/pytorch/pytorch/issues/144530
Rule: gradient-not-reduced, missing-reduction
"""

from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

SAMPLES, WIDTHS, INNER, MICRO_BATCHES = 12, (5, 4, 3), (7, 6), 3
STAGES = len(WIDTHS) - 1


class Block(nn.Module):
    def __init__(self, width_in, inner, width_out):
        super().__init__()
        self.up = nn.Linear(width_in, inner)
        self.down = nn.Linear(inner, width_out, bias=False)

    def forward(self, x):
        return self.down(torch.tanh(self.up(x)))


def mse_loss(output, target):
    return (output - target).square().sum(-1).mean()


class DDP(nn.Module):
    """The reducer: every gradient is averaged by a hook, with the last micro-batch."""

    def __init__(self, module, process_group):
        super().__init__()
        self.module = module
        self.process_group = process_group
        self.require_backward_grad_sync = True
        for parameter in module.parameters():
            parameter.register_post_accumulate_grad_hook(self.autograd_hook)

    def autograd_hook(self, parameter):
        if self.require_backward_grad_sync:
            self.reduce(parameter)

    def reduce(self, parameter):
        dist.all_reduce(parameter.grad, group=self.process_group)
        parameter.grad.div_(dist.get_world_size(self.process_group))

    @contextmanager
    def no_sync(self):
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = True

    def forward(self, x):
        return self.module(x)


def stage_backward(output, grad_output):
    torch.autograd.backward(output, grad_output)


def stage_backward_input(output, grad_output, stage_input):
    """The half that the stage before waits for."""
    (grad_input,) = torch.autograd.grad(output, stage_input, grad_output, retain_graph=True)
    return grad_input


def stage_backward_weight(output, grad_output, weights):
    """The half that nobody waits for."""
    for weight, grad in zip(weights, torch.autograd.grad(output, weights, grad_output), strict=True):
        weight.grad = grad if weight.grad is None else weight.grad + grad  # fault


class PipelineStage:
    def __init__(self, submod, stage_index, group):
        self.submod = submod
        self.stage_index, self.group = stage_index, group
        self.is_first, self.is_last = stage_index == 0, stage_index == STAGES - 1
        self.fwd_cache, self.bwd_cache = {}, {}
        self.losses = []

    def _peer(self, offset):
        return dist.get_global_rank(self.group, self.stage_index + offset)

    def forward_one_chunk(self, index, x, target):
        if not self.is_first:
            x = torch.empty(x.shape[0], WIDTHS[self.stage_index])
            dist.recv(x, self._peer(-1), group=self.group)
            x.requires_grad_()
        output = self.submod(x)
        if self.is_last:
            output = mse_loss(output, target) / MICRO_BATCHES
            self.losses.append(output.detach())
        else:
            dist.send(output.detach(), self._peer(1), group=self.group)
        self.fwd_cache[index] = (output, x)

    def backward_maybe_with_nosync(self, backward, *args, last_backward=False):
        """Gradients are reduced with the last backward pass of the weights."""
        if last_backward:
            result = backward(*args)
            # fixed, insert: if backward is stage_backward_weight:
            # fixed, insert:     for parameter in self.submod.parameters():
            # fixed, insert:         self.submod.reduce(parameter)
            return result
        with self.submod.no_sync():
            return backward(*args)

    def backward_input_one_chunk(self, index):
        output, stage_input = self.fwd_cache[index]
        grad_output = None
        if not self.is_last:
            grad_output = torch.empty(output.shape)
            dist.recv(grad_output, self._peer(1), group=self.group)
        if not self.is_first:
            grad_input = self.backward_maybe_with_nosync(stage_backward_input, output, grad_output, stage_input)
            dist.send(grad_input, self._peer(-1), group=self.group)
        self.bwd_cache[index] = grad_output

    def backward_weight_one_chunk(self, index, last_backward):
        output, _ = self.fwd_cache.pop(index)
        grad_output = self.bwd_cache.pop(index)
        if self.is_first:
            self.backward_maybe_with_nosync(stage_backward, output, grad_output, last_backward=last_backward)
            return
        weights = list(self.submod.parameters())
        self.backward_maybe_with_nosync(stage_backward_weight, output, grad_output, weights, last_backward=last_backward)  # near


class ScheduleZeroBubble:
    """All forward passes, then the inputs' halves, then the weights'."""

    def __init__(self, stage):
        self.stage = stage

    def step(self, x, target):
        for index, chunk in enumerate(zip(x.chunk(MICRO_BATCHES), target.chunk(MICRO_BATCHES), strict=True)):
            self.stage.forward_one_chunk(index, *chunk)
        for index in range(MICRO_BATCHES):
            self.stage.backward_input_one_chunk(index)
        for index in range(MICRO_BATCHES):
            self.stage.backward_weight_one_chunk(index, last_backward=index == MICRO_BATCHES - 1)


def spec_step(blocks):
    def step(x, target):
        loss = mse_loss(blocks(x), target)
        loss.backward()
        return {"loss": loss.detach()} | {
            name.replace(".", "_"): parameter.grad for name, parameter in blocks.named_parameters()
        }

    return step


def train_step(blocks, mesh):
    pp_group, dp_group = mesh.get_group("pp"), mesh.get_group("dp")

    def step(x, target):
        rank = dist.get_rank(pp_group)
        stage = PipelineStage(DDP(blocks[rank], dp_group), rank, pp_group)
        ScheduleZeroBubble(stage).step(x, target)
        loss = sum(stage.losses) if stage.is_last else torch.zeros(())
        dist.all_reduce(loss)
        result = {"loss": loss / dist.get_world_size(dp_group)}
        for name, parameter in blocks.named_parameters():
            owner = int(name.split(".")[0])
            grad = parameter.grad.clone() if owner == rank else torch.empty(parameter.shape)
            dist.broadcast(grad, dist.get_global_rank(pp_group, owner), group=pp_group)
            result[name.replace(".", "_")] = grad
        return result

    return step


def make_blocks():
    return nn.Sequential(*[Block(WIDTHS[i], INNER[i], WIDTHS[i + 1]) for i in range(STAGES)])


@gg.check(mesh={"pp": 2, "dp": 2})
def check(mesh):
    blocks, replica = make_blocks(), make_blocks()
    replica.load_state_dict(blocks.state_dict())
    batch = (gg.tensor(SAMPLES, WIDTHS[0]), gg.tensor(SAMPLES, WIDTHS[-1]))
    return gg.Refinement(
        spec_step(blocks),
        train_step(replica, mesh),
        batch,
        in_relations={"dp": Shard(0)},
        out_relations="replicate",
        grads=False,
    )
