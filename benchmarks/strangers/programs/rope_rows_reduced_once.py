"""Latent attention: one part of a replicated projection is reduced where the next layer reads it, the rope's part is not; then the whole gradient is summed. AReno.

Source: https://github.com/inclusionAI/AReno/pull/496
Rule: extra-reduction, wrong-scale, wrong-relation
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

TOKENS, HIDDEN, HEADS, NOPE, ROPE, KV_RANK = 4, 5, 6, 2, 3, 4


def attention(q, k, v):
    scores = torch.einsum("qhd,khd->hqk", q, k) * (NOPE + ROPE) ** -0.5
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).flatten(1)


def latent_attention(q, kv, k_pe):
    """Queries of all heads, keys and values of all heads, one rope key for all of them."""
    q = q.unflatten(-1, (-1, NOPE + ROPE))
    k_nope, v = kv.unflatten(-1, (-1, 2 * NOPE)).chunk(2, dim=-1)
    k_pe = k_pe.unsqueeze(1).expand(-1, q.shape[1], -1)
    return attention(q, torch.cat([k_nope, k_pe], dim=-1), v)


class CopyToTensorParallel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class ReduceFromTensorParallel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class ColumnParallelLinear(nn.Module):
    """Own rows of a weight; its input's gradient is summed unless the caller has seen to it."""

    def __init__(self, weight, group, copy_input=True):
        super().__init__()
        self.group = group
        self.copy_input = copy_input
        self.weight = nn.Parameter(weight)

    def forward(self, x):
        if self.copy_input:
            x = CopyToTensorParallel.apply(x, self.group)  # near
        return F.linear(x, self.weight)


class BailingMLA(nn.Module):
    """Projections of the queries and of the keys' heads in parts; that to the latent space on all ranks."""

    def __init__(self, q, kv_a, kv_b, o, group):
        super().__init__()
        self.group = group
        self.q_proj = ColumnParallelLinear(q, group)
        self.kv_a_proj = nn.Parameter(kv_a)
        self.kv_b_proj = ColumnParallelLinear(kv_b, group)  # fixed: self.kv_b_proj = ColumnParallelLinear(kv_b, group, copy_input=False)
        self.o_proj = nn.Parameter(o)

    def forward(self, hidden_states):
        compressed = hidden_states  # fixed: compressed = CopyToTensorParallel.apply(hidden_states, self.group)
        kv, k_pe = F.linear(compressed, self.kv_a_proj).split([KV_RANK, ROPE], dim=-1)  # fault
        out = latent_attention(self.q_proj(hidden_states), self.kv_b_proj(kv), k_pe)
        return hidden_states + ReduceFromTensorParallel.apply(F.linear(out, self.o_proj), self.group)


class TrainingManager:
    """After the backward pass the gradients of what is on all ranks are summed."""

    def __init__(self, group):
        self.group = group

    def reduce_replicated(self, parameters):
        for parameter in parameters:
            dist.all_reduce(parameter.grad, group=self.group)


def spec_step(x, q, kv_a, kv_b, o):
    x, q, kv_a, kv_b, o = (each.detach().requires_grad_() for each in (x, q, kv_a, kv_b, o))
    kv, k_pe = F.linear(x, kv_a).split([KV_RANK, ROPE], dim=-1)
    out = latent_attention(F.linear(x, q), F.linear(kv, kv_b), k_pe)
    (x + F.linear(out, o)).square().sum().backward()
    return {"kv_a": kv_a.grad, "q": q.grad, "kv_b": kv_b.grad, "o": o.grad, "x": x.grad}


def train_step(group):
    manager = TrainingManager(group)

    def step(x, q, kv_a, kv_b, o):
        x = x.detach().requires_grad_()
        layer = BailingMLA(q.detach(), kv_a.detach(), kv_b.detach(), o.detach(), group)
        layer(x).square().sum().backward()
        manager.reduce_replicated([layer.kv_a_proj])  # near
        return {
            "kv_a": layer.kv_a_proj.grad,
            "q": layer.q_proj.weight.grad,
            "kv_b": layer.kv_b_proj.weight.grad,
            "o": layer.o_proj.grad,
            "x": x.grad,
        }

    return step


@gg.check(mesh={"tp": 2})
def check(mesh):
    inputs = (
        gg.tensor(TOKENS, HIDDEN),
        gg.tensor(HEADS * (NOPE + ROPE), HIDDEN),
        gg.tensor(KV_RANK + ROPE, HIDDEN),
        gg.tensor(HEADS * 2 * NOPE, KV_RANK),
        gg.tensor(HIDDEN, HEADS * NOPE),
    )
    whole, rows, columns = {}, {"tp": Shard(0)}, {"tp": Shard(1)}
    return gg.Refinement(
        spec_step,
        train_step(mesh.get_group("tp")),
        inputs,
        in_relations=(whole, rows, whole, rows, columns),
        out_relations=(whole, rows, rows, columns, whole),
        grads=False,
    )
