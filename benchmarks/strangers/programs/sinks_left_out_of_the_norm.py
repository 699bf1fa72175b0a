"""Attention sinks are learnt per head; no mark says they are parts, so the norm counts the first rank's. Megatron-LM.

Source: https://github.com/NVIDIA/Megatron-LM/issues/7452
Rule: wrong-relation, missing-reduction, wrong-scale
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

TOKENS, HIDDEN, HEADS, DIM, LR, MAX_NORM, EPS = 5, 7, 4, 3, 0.5, 2.0, 1e-6
NAMES = ("input_layernorm", "linear_q", "linear_k", "linear_v", "softmax_offset", "linear_proj")


class _CopyToModelParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class _ReduceFromModelParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def rms_norm(x, weight):
    return x * (x.square().mean(-1, keepdim=True) + EPS).rsqrt() * weight


def mark_tensor_model_parallel(parameter):
    """Each rank has a part of it."""
    parameter.tensor_model_parallel = True
    return parameter


class DotProductAttention:
    """Every head has a learnt score that belongs to no key, so that a query may look at nothing."""

    def __init__(self, softmax_offset):
        self.softmax_offset = nn.Parameter(softmax_offset)
        # fixed, insert: mark_tensor_model_parallel(self.softmax_offset)

    def __call__(self, q, k, v):
        scores = torch.einsum("qhd,khd->hqk", q, k) * DIM**-0.5
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
        sinks = self.softmax_offset[:, None, None].expand(-1, scores.shape[1], 1)
        probs = torch.cat([scores, sinks], dim=-1).softmax(-1)[..., :-1]
        return torch.einsum("hqk,khd->qhd", probs, v)


class TransformerLayer:
    """Attention with a norm before and a residual around; with a group, this rank's heads."""

    def __init__(self, tensors, group=None):
        self.group = group
        self.input_layernorm = nn.Parameter(tensors["input_layernorm"])
        self.linear_q = mark_tensor_model_parallel(nn.Parameter(tensors["linear_q"]))
        self.linear_k = mark_tensor_model_parallel(nn.Parameter(tensors["linear_k"]))
        self.linear_v = mark_tensor_model_parallel(nn.Parameter(tensors["linear_v"]))
        self.core_attention = DotProductAttention(tensors["softmax_offset"])
        self.linear_proj = mark_tensor_model_parallel(nn.Parameter(tensors["linear_proj"]))

    def parameters(self):
        owners = {"softmax_offset": self.core_attention}
        return {name: getattr(owners.get(name, self), name) for name in NAMES}

    def __call__(self, x):
        normed = rms_norm(x, self.input_layernorm)
        if self.group is not None:
            normed = _CopyToModelParallelRegion.apply(normed, self.group)
        weights = (self.linear_q, self.linear_k, self.linear_v)
        q, k, v = ((normed @ weight.t()).unflatten(-1, (-1, DIM)) for weight in weights)
        out = self.core_attention(q, k, v).flatten(1) @ self.linear_proj.t()
        if self.group is not None:
            out = _ReduceFromModelParallelRegion.apply(out, self.group)
        return x + out


def param_is_not_tensor_parallel_duplicate(parameter, group):
    """Those that all ranks have whole count once."""
    if group is None or getattr(parameter, "tensor_model_parallel", False):
        return True
    return dist.get_rank(group) == 0


class Optimizer:
    """SGD with gradients clipped by their norm over the whole model."""

    def __init__(self, parameters, group=None):
        self.parameters, self.group = parameters, group

    def get_main_grads_for_grad_norm(self):
        kept = [p for p in self.parameters.values() if param_is_not_tensor_parallel_duplicate(p, self.group)]  # fault
        return [parameter.grad for parameter in kept]

    def get_grad_norm(self):
        total = sum((grad.square().sum() for grad in self.get_main_grads_for_grad_norm()), torch.zeros(()))
        if self.group is not None:
            dist.all_reduce(total, group=self.group)  # near
        return total.sqrt()

    def step(self):
        norm = self.get_grad_norm()
        coefficient = (MAX_NORM / (norm + EPS)).clamp(max=1.0)
        updated = {name: p.detach() - LR * coefficient * p.grad for name, p in self.parameters.items()}
        return {"norm": norm, **updated}


def train_step(group=None):
    def step(x, target, *tensors):
        layer = TransformerLayer({name: tensor.detach() for name, tensor in zip(NAMES, tensors, strict=True)}, group)
        loss = (layer(x) - target).square().sum()
        loss.backward()
        return {"loss": loss.detach(), **Optimizer(layer.parameters(), group).step()}

    return step


@gg.check(mesh={"tp": 2})
def check(mesh):
    projections = [gg.tensor(HEADS * DIM, HIDDEN) for _ in range(3)]
    tensors = (gg.tensor(HIDDEN), *projections, gg.tensor(HEADS), gg.tensor(HIDDEN, HEADS * DIM))
    batch = (gg.tensor(TOKENS, HIDDEN), gg.tensor(TOKENS, HIDDEN))
    whole, rows, columns = {"tp": Replicate()}, {"tp": Shard(0)}, {"tp": Shard(1)}
    relations = (whole, rows, rows, rows, rows, columns)
    return gg.Refinement(
        train_step(),
        train_step(mesh.get_group("tp")),
        batch + tensors,
        in_relations=(whole, whole, *relations),
        out_relations=(whole, whole, *relations),
        grads=False,
    )
