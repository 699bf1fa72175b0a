"""Local SGD averages the weights every so many steps; the averager counts its calls, and the optimizer calls it once for every parameter. PyTorch.

Source: https://github.com/pytorch/pytorch/pull/74737
Rule: missing-reduction, wrong-relation
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

WORKERS, STEPS, SAMPLES, WIDTH, INNER, OUT = 3, 2, 12, 5, 6, 7
LR, PERIOD, WARMUP = 0.3, 2, 1


class Model(nn.Module):
    def __init__(self, up, bias, down):
        super().__init__()
        self.up, self.bias, self.down = (nn.Parameter(tensor.detach().clone()) for tensor in (up, bias, down))

    def forward(self, x):
        return torch.tanh(x @ self.up.t() + self.bias) @ self.down.t()


def loss_fn(output, target):
    return (output - target).square().sum(-1).mean()


class SGD:
    def __init__(self, parameters, lr):
        self.param_groups = [{"params": list(parameters), "lr": lr}]

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.sub_(group["lr"] * parameter.grad)

    def zero_grad(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None


def flat_params_all_reduce(parameters, group):
    """Their mean over the group, with one call."""
    flat = torch.cat([parameter.data.reshape(-1) for parameter in parameters])
    flat /= dist.get_world_size(group)
    dist.all_reduce(flat, group=group)
    parts = flat.split([parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.data.copy_(part.view_as(parameter))


class ModelAverager:
    def __init__(self, group):
        self.group = group
        self.step = 0


class PeriodicModelAverager(ModelAverager):
    """Averages after every ``period`` steps, and not at all in the first ones."""

    def __init__(self, period, warmup_steps, group):
        super().__init__(group)
        self.period, self.warmup_steps = period, warmup_steps

    def is_due(self):
        return self.step >= self.warmup_steps and (self.step - self.warmup_steps) % self.period == 0

    def average_parameters(self, parameters):
        if self.is_due():
            flat_params_all_reduce(list(parameters), self.group)
        self.step += 1  # near


class PostLocalSGDOptimizer:
    """A local optimizer, and what brings the workers together."""

    def __init__(self, optim, averager):
        self.optim, self.averager = optim, averager
        self.param_groups = optim.param_groups

    def trained(self):
        for group in self.param_groups:
            yield from (parameter for parameter in group["params"] if parameter.grad is not None)

    def step(self):
        self.optim.step()
        for parameter in self.trained():  # fixed: with torch.no_grad():
            self.averager.average_parameters([parameter])  # fixed: self.averager.average_parameters(self.trained())

    def zero_grad(self):
        self.optim.zero_grad()


class Worker:
    """One of those that train by themselves."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def train_step(self, x, target):
        self.optimizer.zero_grad()
        loss_fn(self.model(x), target).backward()
        self.optimizer.step()

    def state(self):
        return {name: parameter.detach() for name, parameter in self.model.named_parameters()}


def spec(inputs, targets, *tensors):
    """All workers, one after the other."""
    workers = []
    for _ in range(WORKERS):
        model = Model(*tensors)
        workers.append(Worker(model, SGD(model.parameters(), LR)))
    for step in range(STEPS):
        batches = zip(inputs[step].chunk(WORKERS), targets[step].chunk(WORKERS), strict=True)
        for worker, (x, target) in zip(workers, batches, strict=True):
            worker.train_step(x, target)
        if step < WARMUP or (step - WARMUP) % PERIOD:
            continue
        with torch.no_grad():
            for copies in zip(*(worker.model.parameters() for worker in workers), strict=True):
                mean = torch.stack(copies).mean(0)
                for copy in copies:
                    copy.copy_(mean)
    return workers[0].state()


def train(group):
    def impl(inputs, targets, *tensors):
        model = Model(*tensors)
        averager = PeriodicModelAverager(PERIOD, WARMUP, group)
        optimizer = PostLocalSGDOptimizer(SGD(model.parameters(), LR), averager)
        worker = Worker(model, optimizer)
        for x, target in zip(inputs, targets, strict=True):
            worker.train_step(x, target)
        return worker.state()

    return impl


@gg.check(mesh={"dp": 3})
def check(mesh):
    batch = (gg.tensor(STEPS, SAMPLES, WIDTH), gg.tensor(STEPS, SAMPLES, OUT))
    tensors = (gg.tensor(INNER, WIDTH), gg.tensor(INNER), gg.tensor(OUT, INNER))
    samples, whole = {"dp": Shard(1)}, {"dp": Replicate()}
    return gg.Refinement(
        spec,
        train(mesh.get_group("dp")),
        batch + tensors,
        in_relations=(samples, samples, whole, whole, whole),
        out_relations="replicate",
        grads=False,
    )
