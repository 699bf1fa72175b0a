"""The norm of the queries sees the own heads only, and its weight is not marked, so its gradient is not reduced: Megatron-LM's q_layernorm.

Source: https://github.com/NVIDIA-NeMo/RL/issues/3716
Rule: gradient-not-reduced
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

HIDDEN, HEADS, DIM = 6, 4, 3


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(DIM))

    def forward(self, x):
        return F.rms_norm(x, (DIM,), self.weight, 1e-5)


class SelfAttention(nn.Module):
    def __init__(self, group=None):
        super().__init__()
        self.group = group
        heads = HEADS // (1 if group is None else dist.get_world_size(group))
        self.linear_q = nn.Linear(HIDDEN, heads * DIM, bias=False)
        self.linear_k = nn.Linear(HIDDEN, heads * DIM, bias=False)
        self.q_layernorm = Norm()  # fault
        self.k_layernorm = Norm()
        self.linear_proj = nn.Linear(heads * DIM, HIDDEN, bias=False)
        # fixed, insert: self.q_layernorm.weight.average_gradients_across_tp_domain = True
        self.k_layernorm.weight.average_gradients_across_tp_domain = True  # near

    def forward(self, x):
        if self.group is not None:
            x = Copy.apply(x, self.group)
        q = self.q_layernorm(self.linear_q(x).unflatten(-1, (-1, DIM)))  # fault
        k = self.k_layernorm(self.linear_k(x).unflatten(-1, (-1, DIM)))
        scores = torch.einsum("qhd,khd->hqk", q, k).softmax(-1)
        y = self.linear_proj(torch.einsum("hqk,khd->qhd", scores, k).flatten(1))
        return y if self.group is None else Reduce.apply(y, self.group)


def allreduce_layernorm_grads(model, group):
    """What Megatron does to gradients after the backward pass."""
    for parameter in model.parameters():
        if getattr(parameter, "average_gradients_across_tp_domain", False):  # fault
            parameter.register_hook(lambda grad: reduced(grad, group))
    return model


def reduced(grad, group):
    grad = grad.clone()
    dist.all_reduce(grad, group=group)
    return grad


@gg.check(mesh={"tp": 2})
def check(mesh):
    group = mesh.get_group("tp")
    impl = allreduce_layernorm_grads(SelfAttention(group), group)
    return gg.Refinement(SelfAttention(), impl, (gg.tensor(4, HIDDEN),), out_relations="replicate")
