"""A pipeline's backward pass is split: first the gradients of inputs, later those of weights; a weight that is used twice gets its first use's part twice. PyTorch.

Source: https://github.com/pytorch/pytorch/issues/180952
Rule: wrong-scale, wrong-relation
"""

import torch
import torch.distributed as dist
from torch import nn

import graphguard as gg

HIDDEN, INNER, SAMPLES, MICRO_BATCHES, LOOPS = 3, 4, 6, 3, 2


def linear_tanh(x, weight):
    return torch.tanh(x @ weight)


class FirstStage(nn.Module):
    """Enters the inner width, then goes through one layer again and again."""

    def __init__(self, inward, shared):
        super().__init__()
        self.inward = nn.Parameter(inward.detach().clone())
        self.shared = nn.Parameter(shared.detach().clone())

    def forward(self, x, use=None):
        use = use or (lambda name, value: linear_tanh(value, getattr(self, name)))
        x = use("inward", x)
        for _ in range(LOOPS):
            x = use("shared", x)
        return x


class LastStage(nn.Module):
    """One more layer, then out."""

    def __init__(self, middle, outward):
        super().__init__()
        self.middle = nn.Parameter(middle.detach().clone())
        self.outward = nn.Parameter(outward.detach().clone())

    def forward(self, x, use=None):
        use = use or (lambda name, value: linear_tanh(value, getattr(self, name)))
        return use("outward", use("middle", x))


def loss_fn(output, target):
    return (output - target).square().sum() / SAMPLES


def spec_step(inward, shared, middle, outward, x, target):
    first, last = FirstStage(inward, shared), LastStage(middle, outward)
    loss_fn(last(first(x)), target).backward()
    return {
        "inward": first.inward.grad,
        "shared": first.shared.grad,
        "middle": last.middle.grad,
        "outward": last.outward.grad,
    }


class PipelineStage:
    """A stage whose backward pass runs in two parts, as zero-bubble schedules want it."""

    def __init__(self, submodule, input_width, group):
        self.submodule = submodule
        self.input_width = input_width
        self.group = group
        self.stage_index, self.num_stages = dist.get_rank(group), dist.get_world_size(group)
        self.is_first, self.is_last = self.stage_index == 0, self.stage_index == self.num_stages - 1
        self.fwd_cache = {}
        self.bwd_cache = {}

    def recv(self, rows, width, source):
        received = torch.empty(rows, width)
        dist.recv(received, source, group=self.group)
        return received

    def forward_one_chunk(self, chunk, x):
        """Keeps each use of a weight: its name, what went in and what came out."""
        received = x if self.is_first else self.recv(x.shape[0], self.input_width, self.stage_index - 1)
        uses = []

        def use(name, value):
            entry = value  # fixed: entry = value.detach().requires_grad_()
            leaving = linear_tanh(entry, getattr(self.submodule, name))
            uses.append((name, entry, leaving))
            return leaving

        output = self.submodule(received.detach().requires_grad_(), use)
        self.fwd_cache[chunk] = (uses, output)
        if not self.is_last:
            dist.send(output.detach(), self.stage_index + 1, group=self.group)

    def backward_input_one_chunk(self, chunk, target):
        """From use to use: the gradient of what came out becomes that of what went in, and is kept for the weight."""
        uses, output = self.fwd_cache.pop(chunk)
        if self.is_last:
            leaf = output.detach().requires_grad_()
            (grad,) = torch.autograd.grad(loss_fn(leaf, target), leaf)
        else:
            grad = self.recv(output.shape[0], output.shape[1], self.stage_index + 1)
        param_groups = {}
        for name, entry, leaving in reversed(uses):
            param_groups.setdefault(name, []).append((leaving, grad))
            (grad,) = torch.autograd.grad(leaving, entry, grad, retain_graph=True)
        self.bwd_cache[chunk] = param_groups
        if not self.is_first:
            dist.send(grad.contiguous(), self.stage_index - 1, group=self.group)

    def backward_weight_one_chunk(self, chunk):
        """All uses of a weight together."""
        for name, uses in self.bwd_cache.pop(chunk).items():
            weight = getattr(self.submodule, name)
            intermediates = [leaving for leaving, _ in uses]
            grads = [grad for _, grad in uses]
            (dweight,) = torch.autograd.grad(intermediates, weight, grads, retain_graph=True)  # fault
            weight.grad = dweight if weight.grad is None else weight.grad + dweight


class ScheduleZeroBubble:
    """Forward passes, then the inputs' gradients; the weights' gradients are put off until the others have what they wait for."""

    def __init__(self, stage):
        self.stage = stage

    def step(self, x, target):
        inputs, targets = x.chunk(MICRO_BATCHES), target.chunk(MICRO_BATCHES)
        for chunk, part in enumerate(inputs):
            self.stage.forward_one_chunk(chunk, part)
        for chunk, part in enumerate(targets):
            self.stage.backward_input_one_chunk(chunk, part)
        for chunk in range(MICRO_BATCHES):
            self.stage.backward_weight_one_chunk(chunk)


def whole(parameter, source, shape, group):
    """A stage's gradient on all ranks."""
    grad = torch.empty(shape) if parameter is None else parameter.grad.clone()
    dist.broadcast(grad, source, group=group)
    return grad


def train_step(group):
    def step(inward, shared, middle, outward, x, target):
        submodule = FirstStage(inward, shared) if dist.get_rank(group) == 0 else LastStage(middle, outward)
        ScheduleZeroBubble(PipelineStage(submodule, INNER, group)).step(x, target)
        owned = dict(submodule.named_parameters())
        return {
            "inward": whole(owned.get("inward"), 0, inward.shape, group),
            "shared": whole(owned.get("shared"), 0, shared.shape, group),
            "middle": whole(owned.get("middle"), 1, middle.shape, group),
            "outward": whole(owned.get("outward"), 1, outward.shape, group),
        }

    return step


@gg.check(mesh={"pp": 2})
def check(mesh):
    weights = (gg.tensor(HIDDEN, INNER), gg.tensor(INNER, INNER), gg.tensor(INNER, INNER), gg.tensor(INNER, HIDDEN))
    batch = (gg.tensor(SAMPLES, HIDDEN), gg.tensor(SAMPLES, HIDDEN))
    return gg.Refinement(
        spec_step, train_step(mesh.get_group("pp")), weights + batch, out_relations="replicate", grads=False
    )
