"""The learning rate falls with the number of steps; the library steps its schedule once for every process, so that it ends too early. LTX-Video's trainer with Accelerate.

Source: https://github.com/Lightricks/LTX-Video-Trainer/issues/67
Rule: wrong-scale, wrong-relation
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

STEPS, SAMPLES, WIDTH, INNER, OUT, LR, END = 4, 6, 4, 5, 3, 0.5, 0.1
TRAINED = 2
NAMES = ("proj_in", "proj_out")


class Transformer(nn.Module):
    def __init__(self, proj_in, proj_out):
        super().__init__()
        self.proj_in, self.proj_out = nn.Parameter(proj_in.detach().clone()), nn.Parameter(proj_out.detach().clone())

    def forward(self, x):
        return torch.tanh(x @ self.proj_in.t()) @ self.proj_out.t()


class SGD:
    def __init__(self, parameters, lr):
        self.parameters, self.lr = list(parameters), lr

    @torch.no_grad()
    def step(self):
        for parameter in self.parameters:
            parameter.sub_(self.lr * parameter.grad)  # near
            parameter.grad = None


class LinearLR:
    """From one to ``end_factor`` in ``total_iters`` steps, and no further."""

    def __init__(self, optimizer, end_factor, total_iters):
        self.optimizer, self.base_lr = optimizer, optimizer.lr
        self.end_factor, self.total_iters = end_factor, total_iters
        self.last_epoch = 0

    def step(self):
        self.last_epoch += 1
        done = min(self.last_epoch, self.total_iters) / self.total_iters
        self.optimizer.lr = self.base_lr * (1 + done * (self.end_factor - 1))


class AcceleratedScheduler:
    """The schedule of a loader that is not dealt to processes yet: one step of all of them is that many of it."""

    def __init__(self, scheduler, num_processes, split_batches):
        self.scheduler, self.num_processes, self.split_batches = scheduler, num_processes, split_batches

    def step(self):
        if self.split_batches:
            self.scheduler.step()
            return
        for _ in range(self.num_processes):
            self.scheduler.step()


class Accelerator:
    def __init__(self, group=None, split_batches=False):
        self.group, self.split_batches = group, split_batches
        self.num_processes = 1 if group is None else dist.get_world_size(group)

    def prepare(self, scheduler):
        return AcceleratedScheduler(scheduler, self.num_processes, self.split_batches)

    def backward(self, loss, parameters):
        """With the mean over the processes."""
        loss.backward()
        for parameter in parameters:
            if self.group is not None:
                parameter.grad.div_(self.num_processes)
                dist.all_reduce(parameter.grad, group=self.group)


class Trainer:
    """``STEPS`` is what the user asks for."""

    def __init__(self, model, accelerator):
        self.model, self.accelerator = model, accelerator
        self._init_optimizer()

    def _create_scheduler(self, optimizer):
        total_iters = STEPS  # fixed: total_iters = STEPS * self.accelerator.num_processes
        return LinearLR(optimizer, END, total_iters)  # fault

    def _init_optimizer(self):
        self.optimizer = SGD(self.model.parameters(), LR)
        self.lr_scheduler = self.accelerator.prepare(self._create_scheduler(self.optimizer))

    def train(self, inputs, targets):
        """The first of the steps."""
        for x, target in zip(inputs, targets, strict=True):
            loss = (self.model(x) - target).square().sum(-1).mean()
            self.accelerator.backward(loss, self.optimizer.parameters)
            self.optimizer.step()
            self.lr_scheduler.step()
        return {name: parameter.detach() for name, parameter in self.model.named_parameters()}


def trained(group=None):
    def run(inputs, targets, *tensors):
        return Trainer(Transformer(*tensors), Accelerator(group)).train(inputs, targets)

    return run


@gg.check(mesh={"dp": 2})
def check(mesh):
    batch = (gg.tensor(TRAINED, SAMPLES, WIDTH), gg.tensor(TRAINED, SAMPLES, OUT))
    tensors = (gg.tensor(INNER, WIDTH), gg.tensor(OUT, INNER))
    samples, whole = {"dp": Shard(1)}, {"dp": Replicate()}
    return gg.Refinement(
        trained(),
        trained(mesh.get_group("dp")),
        batch + tensors,
        in_relations=(samples, samples, whole, whole),
        out_relations="replicate",
        grads=False,
    )
