"""The norms' gradients are of each rank's own tokens; the hook that reduces them takes the mean. GPT-NeoX.

Source: https://github.com/EleutherAI/gpt-neox/pull/1259
Rule: wrong-scale, gradient-not-reduced
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

SEQUENCE, HIDDEN, INNER, EPS = 6, 5, 12, 1e-5
NAMES = ("input_layernorm", "up", "down", "down_bias", "final_weight", "final_bias")


class ModelParallel:
    """Between the norms the model is split by channels, and around them by tokens."""

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

    def sum(self, x):
        x = x.clone()
        dist.all_reduce(x, group=self.group)
        return x


class _GatherFromSequenceParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, mp):
        ctx.mp = mp
        return mp.gather(x)

    @staticmethod
    def backward(ctx, grad):
        return ctx.mp.scatter(grad), None


class _ReduceScatterToSequenceParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, mp):
        ctx.mp = mp
        return mp.scatter(x)

    @staticmethod
    def backward(ctx, grad):
        return ctx.mp.gather(grad), None


class RMSNorm(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight.detach().clone())

    def forward(self, x):
        return x * (x.square().mean(-1, keepdim=True) + EPS).rsqrt() * self.weight


class LayerNorm(nn.Module):
    def __init__(self, weight, bias):
        super().__init__()
        self.weight = nn.Parameter(weight.detach().clone())
        self.bias = nn.Parameter(bias.detach().clone())

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        return centred * (centred.square().mean(-1, keepdim=True) + EPS).rsqrt() * self.weight + self.bias


class ParallelMLP(nn.Module):
    """Columns, then rows; the bias of the rows is added to what is scattered."""

    def __init__(self, up, down, down_bias, mp=None):
        super().__init__()
        self.mp = mp
        self.up, self.down, self.bias = (nn.Parameter(t.detach().clone()) for t in (up, down, down_bias))

    def forward(self, x):
        if self.mp is not None:
            x = _GatherFromSequenceParallelRegion.apply(x, self.mp)
        x = torch.tanh(x @ self.up.t()) @ self.down.t()
        if self.mp is not None:
            x = _ReduceScatterToSequenceParallelRegion.apply(x, self.mp)
        return x + self.bias


class Model(nn.Module):
    """One layer and the norm at the end."""

    def __init__(self, tensors, mp=None):
        super().__init__()
        self.input_layernorm = RMSNorm(tensors["input_layernorm"])
        self.mlp = ParallelMLP(tensors["up"], tensors["down"], tensors["down_bias"], mp)
        self.final_layernorm = LayerNorm(tensors["final_weight"], tensors["final_bias"])

    def forward(self, x):
        return self.final_layernorm(x + self.mlp(self.input_layernorm(x)))


def mark_norms_for_sequence_parallel_grad_sync(model, mp):
    """To be called when the parameters are those that the optimizer has."""

    def reduce_gradient(grad):
        return mp.sum(grad) / mp.size  # fixed: return mp.sum(grad)

    for module in model.modules():
        if isinstance(module, RMSNorm | LayerNorm):
            for parameter in module.parameters():
                parameter.register_hook(reduce_gradient)  # fault
        elif isinstance(module, ParallelMLP):
            module.bias.register_hook(mp.sum)  # near


def train_step(mp=None):
    def step(x, target, *tensors):
        model = Model(dict(zip(NAMES, tensors, strict=True)), mp)
        if mp is not None:
            mark_norms_for_sequence_parallel_grad_sync(model, mp)
        loss = (model(x) - target).square().sum() / SEQUENCE
        loss.backward()
        loss = loss.detach() if mp is None else mp.sum(loss.detach())
        return {"loss": loss, **{name: parameter.grad for name, parameter in model.named_parameters()}}

    return step


@gg.check(mesh={"tp": 3})
def check(mesh):
    batch = (gg.tensor(SEQUENCE, HIDDEN), gg.tensor(SEQUENCE, HIDDEN))
    linears = (gg.tensor(INNER, HIDDEN), gg.tensor(HIDDEN, INNER), gg.tensor(HIDDEN))
    tensors = (gg.tensor(HIDDEN), *linears, gg.tensor(HIDDEN), gg.tensor(HIDDEN))
    whole, rows, columns = {"tp": Replicate()}, {"tp": Shard(0)}, {"tp": Shard(1)}
    relations = (whole, rows, columns, whole, whole, whole)
    return gg.Refinement(
        train_step(),
        train_step(ModelParallel(mesh.get_group("tp"))),
        batch + tensors,
        in_relations=(rows, rows, *relations),
        out_relations=(whole, *relations),
        grads=False,
    )
