"""The sequence is gathered before the memory module, so that its gradients are whole; its parameters are marked like those that see own tokens, and are summed. Megatron-LM-FL.

Source: https://github.com/flagos-ai/Megatron-LM-FL/pull/75
Rule: extra-reduction, wrong-scale
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

SEQUENCE, HIDDEN, MEMORY, KERNEL, EPS = 12, 5, 7, 2, 1e-6
NAMES = ("input_norm", "key", "value", "conv", "final_norm")


@dataclass(frozen=True)
class Config:
    group: Any = None
    sequence_parallel: bool = False

    @property
    def size(self):
        return 1 if self.group is None else dist.get_world_size(self.group)

    @property
    def rank(self):
        return 0 if self.group is None else dist.get_rank(self.group)


def gather(x, config):
    out = torch.empty(config.size * x.shape[0], *x.shape[1:])
    dist.all_gather_into_tensor(out, x.contiguous(), group=config.group)
    return out


class _GatherFromSequenceParallelRegion(torch.autograd.Function):
    """For what every rank then does alike."""

    @staticmethod
    def forward(ctx, x, config):
        ctx.config = config
        return gather(x, config)

    @staticmethod
    def backward(ctx, grad):
        return grad.chunk(ctx.config.size)[ctx.config.rank], None


class _ScatterToSequenceParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, config):
        ctx.config = config
        return x.chunk(config.size)[config.rank].clone()

    @staticmethod
    def backward(ctx, grad):
        return gather(grad, ctx.config), None


def rms(x):
    return x * (x.square().mean(-1, keepdim=True) + EPS).rsqrt()


class RMSNorm(nn.Module):
    def __init__(self, weight, config):
        super().__init__()
        self.weight = nn.Parameter(weight.detach().clone())
        self.weight.sequence_parallel = config.sequence_parallel

    def forward(self, x):
        return rms(x) * self.weight


class ShortConv(nn.Module):
    """Over the tokens before, channel by channel."""

    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight.detach().clone())

    def forward(self, x):
        padded = torch.cat([torch.zeros(KERNEL - 1, x.shape[1]), x])
        taps = [padded[k : k + x.shape[0]] * self.weight[k] for k in range(KERNEL)]
        return x + torch.tanh(torch.stack(taps).sum(0))


class EngramModule(nn.Module):
    """What is remembered of a token, as far as the hidden state lets it in."""

    def __init__(self, key, value, conv, config):
        super().__init__()
        self.config = config
        self.key, self.value = (nn.Parameter(tensor.detach().clone()) for tensor in (key, value))
        self.short_conv = ShortConv(conv)
        for parameter in self.parameters():
            parameter.sequence_parallel = config.sequence_parallel  # fixed: parameter.sequence_parallel = False

    def forward(self, hidden, memory):
        if self.config.sequence_parallel:
            hidden = _GatherFromSequenceParallelRegion.apply(hidden, self.config)
        keys = rms(memory @ self.key.t())
        gate = torch.sigmoid((rms(hidden) * keys).sum(-1, keepdim=True) * HIDDEN**-0.5)
        out = self.short_conv(gate * (memory @ self.value.t()))
        if self.config.sequence_parallel:
            out = _ScatterToSequenceParallelRegion.apply(out, self.config)
        return out


class Model(nn.Module):
    def __init__(self, input_norm, key, value, conv, final_norm, config):
        super().__init__()
        self.input_norm = RMSNorm(input_norm, config)
        self.engram = EngramModule(key, value, conv, config)
        self.final_norm = RMSNorm(final_norm, config)

    def forward(self, x, memory):
        return self.final_norm(x + self.engram(self.input_norm(x), memory))


def allreduce_sequence_parallel_grads(model, config):
    """With one call, as there are many of them and all are small."""
    marked = [parameter for parameter in model.parameters() if parameter.sequence_parallel]
    flat = torch.cat([parameter.grad.reshape(-1) for parameter in marked])
    dist.all_reduce(flat, group=config.group)  # near
    for parameter, part in zip(marked, flat.split([p.numel() for p in marked]), strict=True):
        parameter.grad.copy_(part.view_as(parameter))


def train_step(config):
    def step(x, memory, target, *tensors):
        model = Model(*tensors, config)
        loss = (model(x, memory) - target).square().sum() / SEQUENCE
        loss.backward()
        loss = loss.detach()
        if config.sequence_parallel:
            allreduce_sequence_parallel_grads(model, config)
            dist.all_reduce(loss, group=config.group)
        grads = [parameter.grad for parameter in model.parameters()]
        return {"loss": loss, **dict(zip(NAMES, grads, strict=True))}

    return step


@gg.check(mesh={"tp": 3})
def check(mesh):
    batch = (gg.tensor(SEQUENCE, HIDDEN), gg.tensor(SEQUENCE, MEMORY), gg.tensor(SEQUENCE, HIDDEN))
    engram = (gg.tensor(HIDDEN, MEMORY), gg.tensor(HIDDEN, MEMORY), gg.tensor(KERNEL, HIDDEN))
    whole, rows = {"tp": Replicate()}, {"tp": Shard(0)}
    return gg.Refinement(
        train_step(Config()),
        train_step(Config(mesh.get_group("tp"), sequence_parallel=True)),
        (*batch, gg.tensor(HIDDEN), *engram, gg.tensor(HIDDEN)),
        in_relations=(rows, whole, rows, *[whole] * len(NAMES)),
        out_relations="replicate",
        grads=False,
    )
