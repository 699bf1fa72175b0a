"""ZeRO-2 reduces each gradient only where a rank owns it; Muon makes a whole matrix orthogonal before the rank takes its part, so that a matrix which crosses a partition's end is the mean in one part and the own batch's gradient in the other. DeepSpeed.

Source: https://github.com/deepspeedai/DeepSpeed/issues/7807
Rule: gradient-not-reduced, missing-reduction, nonlinear-on-partial, wrong-relation
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard

import graphguard as gg

SAMPLES, WIDTH, HIDDEN, OUT, STEPS = 6, 4, 5, 3, 2


@dataclass(frozen=True)
class ZeroConfig:
    dp_process_group: Any = None
    reduce_scatter: bool = True
    lr: float = 0.2
    momentum: float = 0.9
    ns_steps: int = 3

    @property
    def world_size(self):
        return 1 if self.dp_process_group is None else dist.get_world_size(self.dp_process_group)

    @property
    def rank(self):
        return 0 if self.dp_process_group is None else dist.get_rank(self.dp_process_group)


def zeropower_via_newtonschulz(grad, steps):
    """Near to the orthogonal matrix that is next to a gradient."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = grad.t() if grad.shape[0] > grad.shape[1] else grad
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        gram = x @ x.t()
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.t() if grad.shape[0] > grad.shape[1] else x


def muon_update(grad, momentum_buffer, beta, ns_steps):
    momentum_buffer.lerp_(grad, 1 - beta)
    update = zeropower_via_newtonschulz(grad.lerp(momentum_buffer, beta), ns_steps)
    return update * max(1, grad.shape[0] / grad.shape[1]) ** 0.5


class DeepSpeedZeroOptimizer:
    """Parameters and gradients one after the other in flat buffers, of which each rank updates a part."""

    def __init__(self, params, config):
        self.config = config
        self.shapes = {name: param.shape for name, param in params.items()}
        flat = torch.cat([param.detach().reshape(-1) for param in params.values()])
        padding = -flat.numel() % config.world_size
        self.bit16_flat = torch.cat([flat, torch.zeros(padding)])
        self.averaged_gradients = torch.zeros_like(self.bit16_flat)
        self.partition_size = self.bit16_flat.numel() // config.world_size
        self.offsets, offset = {}, 0
        for name, shape in self.shapes.items():
            self.offsets[name], offset = offset, offset + shape.numel()
        self.momentum = {name: torch.zeros(shape) for name, shape in self.shapes.items() if self.use_muon(name)}

    def use_muon(self, name):
        return len(self.shapes[name]) == 2

    def view(self, flat, name):
        start = self.offsets[name]
        return flat[start : start + self.shapes[name].numel()].view(self.shapes[name])

    @property
    def partition(self):
        start = self.config.rank * self.partition_size
        return slice(start, start + self.partition_size)

    def params(self):
        return {name: self.view(self.bit16_flat, name).detach().clone().requires_grad_() for name in self.shapes}

    def average_tensor(self, tensor):
        """With reduce-scatter, the mean in the own partition; the rest stays what it was."""
        group, world_size = self.config.dp_process_group, self.config.world_size
        if world_size == 1:
            return
        if not self.config.reduce_scatter:  # fixed: if not self.config.reduce_scatter or self.momentum:
            dist.all_reduce(tensor, group=group)
            tensor.div_(world_size)
            return
        reduced = torch.empty(self.partition_size)
        dist.reduce_scatter_tensor(reduced, tensor / world_size, group=group)  # near
        tensor[self.partition] = reduced  # near

    def reduce_gradients(self, grads):
        self.averaged_gradients.zero_()
        for name, grad in grads.items():
            self.view(self.averaged_gradients, name).copy_(grad)
        self.average_tensor(self.averaged_gradients)

    def get_flat_partition(self):
        """The updates of the own partition."""
        updates = self.averaged_gradients.clone()
        first, last = self.partition.start, self.partition.stop
        for name, shape in self.shapes.items():
            start = self.offsets[name]
            if not self.use_muon(name) or start >= last or start + shape.numel() <= first:
                continue
            grad = self.view(self.averaged_gradients, name)
            update = muon_update(grad, self.momentum[name], self.config.momentum, self.config.ns_steps)  # fault
            self.view(updates, name).copy_(update)
        return updates[self.partition]

    def step(self):
        own = self.bit16_flat[self.partition] - self.config.lr * self.get_flat_partition()
        if self.config.world_size == 1:
            self.bit16_flat = own
        else:
            dist.all_gather_into_tensor(self.bit16_flat, own.contiguous(), group=self.config.dp_process_group)


def loss_fn(params, x, target):
    hidden = torch.tanh(x @ params["up_weight"].t() + params["up_bias"])
    return (hidden @ params["down_weight"].t() - target).square().sum(-1).mean()


def train(config):
    def run(x, target, up_weight, up_bias, down_weight):
        params = {"up_weight": up_weight, "up_bias": up_bias, "down_weight": down_weight}
        optimizer = DeepSpeedZeroOptimizer(params, config)
        for _ in range(STEPS):
            params = optimizer.params()
            loss_fn(params, x, target).backward()
            optimizer.reduce_gradients({name: param.grad for name, param in params.items()})
            optimizer.step()
        return {name: param.detach() for name, param in optimizer.params().items()}

    return run


@gg.check(mesh={"dp": 3})
def check(mesh):
    batch, whole = {"dp": Shard(0)}, {}
    return gg.Refinement(
        train(ZeroConfig()),
        train(ZeroConfig(mesh.get_group("dp"))),
        (
            gg.tensor(SAMPLES, WIDTH),
            gg.tensor(SAMPLES, OUT),
            gg.tensor(HIDDEN, WIDTH),
            gg.tensor(HIDDEN),
            gg.tensor(OUT, HIDDEN),
        ),
        in_relations=(batch, batch, whole, whole, whole),
        out_relations="replicate",
        grads=False,
    )
