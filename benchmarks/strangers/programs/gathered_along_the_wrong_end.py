"""Sequence parallelism in FP8: a linear layer keeps its own tokens transposed, and gathers those of all ranks along the last dimension for the gradient of its weight; the collective puts them behind one another along the first. Transformer Engine.

Source: https://github.com/NVIDIA/TransformerEngine/issues/530
Rule: wrong-relation, wrong-shard
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

TOKENS, HIDDEN, FFN = 6, 4, 9


@dataclass(frozen=True)
class FP8Recipe:
    enabled: bool = True
    scale: float = 16.0
    amax: float = 448.0


@dataclass(frozen=True)
class ParallelConfig:
    tp_group: Any = None
    sequence_parallel: bool = False

    @property
    def tp_size(self):
        return 1 if self.tp_group is None else dist.get_world_size(self.tp_group)

    @property
    def gathers(self):
        return self.sequence_parallel and self.tp_size > 1


def cast_to_fp8(tensor, recipe):
    return torch.round(tensor * recipe.scale).clamp(-recipe.amax, recipe.amax)


def fp8_cast_transpose_fused(tensor, recipe):
    """The cast, and its transpose for the gradient of the weight."""
    cast = cast_to_fp8(tensor, recipe)
    return cast, cast.t().contiguous()


def gather_along_first_dim(input_, config):
    if config.tp_size == 1:
        return input_
    output = torch.empty(config.tp_size * input_.shape[0], *input_.shape[1:])
    dist.all_gather_into_tensor(output, input_.contiguous(), group=config.tp_group)
    return output


def gather_along_last_dim(input_, config):
    if config.tp_size == 1:
        return input_
    output = torch.empty(config.tp_size * input_.numel())
    dist.all_gather_into_tensor(output, input_.reshape(-1), group=config.tp_group)  # near
    return output.view(*input_.shape[:-1], config.tp_size * input_.shape[-1])  # fault


def reduce_scatter_along_first_dim(input_, config):
    output = torch.empty(input_.shape[0] // config.tp_size, *input_.shape[1:])
    dist.reduce_scatter_tensor(output, input_.contiguous(), group=config.tp_group)
    return output


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inp, weight, parallel_mode, config, recipe):
        ctx.parallel_mode, ctx.config, ctx.recipe = parallel_mode, config, recipe
        column = parallel_mode == "column" and config.gathers
        if recipe.enabled:
            inputmat, inputmat_t = fp8_cast_transpose_fused(inp, recipe)
            weight = cast_to_fp8(weight, recipe)
            ctx.save_for_backward(inputmat_t, weight)
        else:
            inputmat = inp
            ctx.save_for_backward(inputmat, weight)
        inputmat_total = gather_along_first_dim(inputmat, config) if column else inputmat
        out = inputmat_total @ weight.t()
        if recipe.enabled:
            out = out / recipe.scale**2
        if parallel_mode == "row" and config.gathers:
            out = reduce_scatter_along_first_dim(out, config)
        return out

    @staticmethod
    def backward(ctx, grad_output):
        saved, weight = ctx.saved_tensors
        config, recipe = ctx.config, ctx.recipe
        column = ctx.parallel_mode == "column" and config.gathers
        if ctx.parallel_mode == "row" and config.gathers:
            grad_output = gather_along_first_dim(grad_output, config)
        if not recipe.enabled:
            inputmat_total = gather_along_first_dim(saved, config) if column else saved
            wgrad, dgrad = grad_output.t() @ inputmat_total, grad_output @ weight
        else:
            inputmat_t_total = saved
            if column:
                inputmat_t_total = gather_along_last_dim(saved, config)  # fixed: inputmat_t_total = gather_along_first_dim(saved.t(), config).t()
            wgrad = (inputmat_t_total @ grad_output).t() / recipe.scale  # near
            dgrad = grad_output @ weight / recipe.scale
        if column:
            dgrad = reduce_scatter_along_first_dim(dgrad, config)
        return dgrad, wgrad, None, None, None


class Linear(nn.Module):
    """A layer whose weight's rows, or columns, are the ranks'."""

    def __init__(self, weight, parallel_mode, config, recipe):
        super().__init__()
        self.weight = nn.Parameter(weight.detach().clone())
        self.parallel_mode, self.config, self.recipe = parallel_mode, config, recipe

    def forward(self, inp):
        return _Linear.apply(inp, self.weight, self.parallel_mode, self.config, self.recipe)


class MLP(nn.Module):
    def __init__(self, fc1, fc2, config, recipe):
        super().__init__()
        self.fc1 = Linear(fc1, "column", config, recipe)
        self.fc2 = Linear(fc2, "row", config, recipe)

    def forward(self, x):
        return x + self.fc2(torch.tanh(self.fc1(x)))


def forward_backward(config, recipe):
    def step(x, target, fc1, fc2):
        x = x.detach().clone().requires_grad_()
        mlp = MLP(fc1, fc2, config, recipe)
        loss = (mlp(x) - target).square().sum()
        loss.backward()
        loss = loss.detach()
        if config.gathers:
            dist.all_reduce(loss, group=config.tp_group)
        return {"loss": loss, "x": x.grad, "fc1": mlp.fc1.weight.grad, "fc2": mlp.fc2.weight.grad}

    return step


@gg.check(mesh={"tp": 3})
def check(mesh):
    rows, columns, whole = {"tp": Shard(0)}, {"tp": Shard(1)}, {}
    tokens = gg.tensor(TOKENS, HIDDEN)
    return gg.Refinement(
        forward_backward(ParallelConfig(), FP8Recipe()),
        forward_backward(ParallelConfig(mesh.get_group("tp"), sequence_parallel=True), FP8Recipe()),
        (tokens, tokens, gg.tensor(FFN, HIDDEN), gg.tensor(HIDDEN, FFN)),
        in_relations=(rows, rows, rows, columns),
        out_relations={"loss": whole, "x": rows, "fc1": rows, "fc2": columns},
        grads=False,
    )
