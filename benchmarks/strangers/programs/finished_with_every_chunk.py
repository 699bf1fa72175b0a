"""A step's data comes in chunks; every chunk's schedule ends with the sums over ranks, and sums up what is summed already. NeMo RL.

Source: https://github.com/NVIDIA-NeMo/RL/pull/3660
Rule: extra-reduction, wrong-scale
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

TOKENS, HIDDEN, INNER, CHUNKS, EPS = 8, 5, 6, 2, 1e-6
NAMES = ("norm", "up", "down")


class TensorParallel:
    def __init__(self, group):
        self.group = group
        self.size = dist.get_world_size(group)

    def gather(self, x):
        out = torch.empty(self.size * x.shape[0], *x.shape[1:])
        dist.all_gather_into_tensor(out, x.contiguous(), group=self.group)
        return out

    def scatter(self, x):
        out = torch.empty(x.shape[0] // self.size, *x.shape[1:])
        dist.reduce_scatter_tensor(out, x.contiguous(), group=self.group)
        return out


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, tp):
        ctx.tp = tp
        return tp.gather(x)

    @staticmethod
    def backward(ctx, grad):
        return ctx.tp.scatter(grad), None


class _ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, tp):
        ctx.tp = tp
        return tp.scatter(x)

    @staticmethod
    def backward(ctx, grad):
        return ctx.tp.gather(grad), None


class Block(nn.Module):
    """A norm over the own tokens, then an MLP of which each rank has some channels."""

    def __init__(self, tensors, tp=None):
        super().__init__()
        self.tp = tp
        for name, tensor in zip(NAMES, tensors, strict=True):
            parameter = nn.Parameter(tensor.detach().clone())
            parameter.main_grad = torch.zeros_like(tensor)
            parameter.sequence_parallel = name == "norm"
            setattr(self, name, parameter)

    def forward(self, x):
        normed = x * (x.square().mean(-1, keepdim=True) + EPS).rsqrt() * self.norm
        if self.tp is not None:
            normed = _Gather.apply(normed, self.tp)
        y = torch.tanh(normed @ self.up.t()) @ self.down.t()
        if self.tp is not None:
            y = _ReduceScatter.apply(y, self.tp)
        return x + y


def finalize_model_grads(model):
    """Those whose gradient is of the own tokens only are summed over the ranks."""
    for parameter in model.parameters():
        if parameter.sequence_parallel and model.tp is not None:
            dist.all_reduce(parameter.main_grad, group=model.tp.group)  # near


@dataclass
class Config:
    finalize_model_grads_func: Any = None


def forward_backward(config, model, x, target):
    """One pass of the schedule."""
    loss = (model(x) - target).square().sum()
    loss.backward()
    for parameter in model.parameters():
        parameter.main_grad.add_(parameter.grad)
        parameter.grad = None
    if config.finalize_model_grads_func is not None:
        config.finalize_model_grads_func(model)
    return loss.detach()


class PolicyWorker:
    """A train step that is begun, fed and finished."""

    def __init__(self, model):
        self.model = model
        self.config = Config(finalize_model_grads)
        self.tokens = 0
        self.losses = []

    def begin_train_step(self):
        for parameter in self.model.parameters():
            parameter.main_grad.zero_()
        # fixed, insert: self.config.finalize_model_grads_func = None
        self.tokens, self.losses = 0, []

    def train_chunk(self, x, target):
        self.losses.append(forward_backward(self.config, self.model, x, target))  # fault
        self.tokens += x.shape[0]

    def finish_train_step(self):
        # fixed, insert: finalize_model_grads(self.model)
        tokens = self.tokens
        loss = torch.stack(self.losses).sum()
        if self.model.tp is not None:
            tokens *= self.model.tp.size
            dist.all_reduce(loss, group=self.model.tp.group)
        grads = {name: parameter.main_grad / tokens for name, parameter in self.model.named_parameters()}
        return {"loss": loss / tokens, **grads}


def train_step(tp=None):
    def step(x, target, *tensors):
        worker = PolicyWorker(Block(tensors, tp))
        worker.begin_train_step()
        for chunk in zip(x.chunk(CHUNKS), target.chunk(CHUNKS), strict=True):
            worker.train_chunk(*chunk)
        return worker.finish_train_step()

    return step


@gg.check(mesh={"tp": 2})
def check(mesh):
    batch = (gg.tensor(TOKENS, HIDDEN), gg.tensor(TOKENS, HIDDEN))
    tensors = (gg.tensor(HIDDEN), gg.tensor(INNER, HIDDEN), gg.tensor(HIDDEN, INNER))
    whole, rows, columns = {"tp": Replicate()}, {"tp": Shard(0)}, {"tp": Shard(1)}
    return gg.Refinement(
        train_step(),
        train_step(TensorParallel(mesh.get_group("tp"))),
        batch + tensors,
        in_relations=(rows, rows, whole, rows, columns),
        out_relations=(whole, whole, rows, columns),
        grads=False,
    )
