"""One forward, one backward: gradients are reduced over the data-parallel ranks with the cooldown's last backward pass, and the last stage has no cooldown. Picotron.

Source: https://github.com/huggingface/picotron/pull/5
Rule: gradient-not-reduced, missing-reduction
"""

from itertools import pairwise

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

WIDTHS = (2, 5, 4, 3)  # in, between the three stages, out
MICRO_BATCHES, SAMPLES = 4, 6


class Stage(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight.detach().clone())

    def forward(self, x):
        return torch.tanh(x @ self.weight)


def loss_fn(output, target):
    return (output - target).square().mean()


def spec_step(first, middle, last, x, target):
    stages = [Stage(first), Stage(middle), Stage(last)]
    for stage in stages:
        x = stage(x)
    loss_fn(x, target).backward()
    return tuple(stage.weight.grad for stage in stages)


class ProcessGroupManager:
    """This rank's place in the grid of data-parallel replicas and pipeline stages."""

    def __init__(self, mesh):
        self.dp_group, self.pp_group = mesh.get_group("dp"), mesh.get_group("pp")
        self.dp_world_size = dist.get_world_size(self.dp_group)
        self.pp_rank, self.pp_world_size = dist.get_rank(self.pp_group), dist.get_world_size(self.pp_group)
        self.pp_is_first_stage, self.pp_is_last_stage = self.pp_rank == 0, self.pp_rank == self.pp_world_size - 1

    def pp_peer(self, stage):
        return dist.get_global_rank(self.pp_group, stage)


class DataParallelBucket:
    """Accumulates gradients; reduces what has been accumulated after a backward pass that is to be synchronised."""

    def __init__(self, module, pgm):
        self.module = module
        self.pgm = pgm
        self.require_backward_grad_sync = True

    def backward(self, input_tensor, output_tensor, output_tensor_grad):
        torch.autograd.backward(output_tensor, grad_tensors=output_tensor_grad)
        if self.require_backward_grad_sync:
            self.sync_gradient()
        return input_tensor.grad

    def sync_gradient(self):
        for parameter in self.module.parameters():
            parameter.grad /= self.pgm.dp_world_size
            dist.all_reduce(parameter.grad, group=self.pgm.dp_group)


class PipelineCommunicate:
    """Messages to the stages before and after; the first and the last stage have one neighbour only."""

    def __init__(self, pgm, rows):
        self.pgm = pgm
        self.input_shape = (rows, WIDTHS[pgm.pp_rank])
        self.output_shape = (rows, WIDTHS[pgm.pp_rank + 1])

    def recv_forward(self):
        if self.pgm.pp_is_first_stage:
            return None
        tensor = torch.empty(self.input_shape)
        dist.recv(tensor, self.pgm.pp_peer(self.pgm.pp_rank - 1), group=self.pgm.pp_group)
        return tensor.requires_grad_()

    def send_forward(self, tensor):
        if not self.pgm.pp_is_last_stage:
            dist.send(tensor.detach(), self.pgm.pp_peer(self.pgm.pp_rank + 1), group=self.pgm.pp_group)

    def recv_backward(self):
        if self.pgm.pp_is_last_stage:
            return None
        tensor = torch.empty(self.output_shape)
        dist.recv(tensor, self.pgm.pp_peer(self.pgm.pp_rank + 1), group=self.pgm.pp_group)
        return tensor

    def send_backward(self, tensor):
        if not self.pgm.pp_is_first_stage:
            dist.send(tensor, self.pgm.pp_peer(self.pgm.pp_rank - 1), group=self.pgm.pp_group)

    def send_forward_recv_backward(self, tensor):
        if self.pgm.pp_is_last_stage:
            return None
        peer, grad, group = self.pgm.pp_peer(self.pgm.pp_rank + 1), torch.empty(self.output_shape), self.pgm.pp_group
        messages = [dist.P2POp(dist.isend, tensor.detach(), peer, group), dist.P2POp(dist.irecv, grad, peer, group)]
        for request in dist.batch_isend_irecv(messages):
            request.wait()
        return grad


def train_step_pipeline_1f1b(model, x, target, pgm):
    communicate = PipelineCommunicate(pgm, x.shape[1])
    num_warmup_microbatches = min(pgm.pp_world_size - pgm.pp_rank - 1, MICRO_BATCHES)
    num_microbatches_remaining = MICRO_BATCHES - num_warmup_microbatches
    batches = iter(zip(x, target, strict=True))
    input_tensors, output_tensors = [], []

    def forward():
        data, labels = next(batches)
        received = communicate.recv_forward()
        input_tensors.append(data.detach().requires_grad_() if received is None else received)
        output_tensor = model.module(input_tensors[-1])
        output_tensors.append(loss_fn(output_tensor, labels) / MICRO_BATCHES if pgm.pp_is_last_stage else output_tensor)
        return output_tensors[-1]

    def backward(output_tensor_grad):
        communicate.send_backward(model.backward(input_tensors.pop(0), output_tensors.pop(0), output_tensor_grad))

    for _ in range(num_warmup_microbatches):
        communicate.send_forward(forward())

    model.require_backward_grad_sync = False  # near
    for ith_microbatch in range(num_microbatches_remaining):
        output_tensor_grad = communicate.send_forward_recv_backward(forward())
        # fixed, insert: is_last_iteration = ith_microbatch == num_microbatches_remaining - 1
        # fixed, insert: model.require_backward_grad_sync = num_warmup_microbatches == 0 and is_last_iteration
        backward(output_tensor_grad)  # fault

    for ith_warmup_microbatch in range(num_warmup_microbatches):
        model.require_backward_grad_sync = ith_warmup_microbatch == num_warmup_microbatches - 1
        backward(communicate.recv_backward())


def whole(grad, stage, shape, pgm):
    """One stage's gradient on all stages."""
    grad = grad.clone() if pgm.pp_rank == stage else torch.empty(shape)
    dist.broadcast(grad, pgm.pp_peer(stage), group=pgm.pp_group)
    return grad


def train_step(pgm):
    def step(first, middle, last, x, target):
        weights = (first, middle, last)
        model = DataParallelBucket(Stage(weights[pgm.pp_rank]), pgm)
        train_step_pipeline_1f1b(model, x, target, pgm)
        own = model.module.weight.grad
        return tuple(whole(own, stage, weight.shape, pgm) for stage, weight in enumerate(weights))

    return step


@gg.check(mesh={"dp": 2, "pp": 3})
def check(mesh):
    weights = tuple(gg.tensor(*widths) for widths in pairwise(WIDTHS))
    batch = (gg.tensor(MICRO_BATCHES, SAMPLES, WIDTHS[0]), gg.tensor(MICRO_BATCHES, SAMPLES, WIDTHS[-1]))
    samples = ({}, {}, {}, {"dp": Shard(1)}, {"dp": Shard(1)})
    impl = train_step(ProcessGroupManager(mesh))
    return gg.Refinement(spec_step, impl, weights + batch, in_relations=samples, out_relations="replicate", grads=False)
