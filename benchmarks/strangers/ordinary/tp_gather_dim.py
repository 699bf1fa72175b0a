"""A column-parallel layer with gather_output=True, trained for two steps. Gathered outputs are joined along dim 0 (then reshaped) instead of the last dim.

Rule: wrong-shard
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import Shard

import graphguard as gg

STEPS, BATCH, DIM, OUT, LR = 2, 5, 4, 6, 0.1


class GatherLast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts, dim=0).reshape(x.shape[0], -1)  # fixed: return torch.cat(parts, dim=-1)

    @staticmethod
    def backward(ctx, grad):
        return grad.chunk(dist.get_world_size(), dim=-1)[dist.get_rank()].contiguous()


def train(w, v, xs, ys):
    for step in range(STEPS):
        w, v = w.detach().requires_grad_(), v.detach().requires_grad_()
        h = torch.relu(xs[step] @ w.t())
        loss = F.mse_loss(h @ v, ys[step])
        loss.backward()
        w, v = w - LR * w.grad, v - LR * v.grad
    return w.detach(), v.detach()


def train_tp(w, v, xs, ys):
    for step in range(STEPS):
        w, v = w.detach().requires_grad_(), v.detach().requires_grad_()
        h = torch.relu(GatherLast.apply(xs[step] @ w.t()))
        loss = F.mse_loss(h @ v, ys[step])
        loss.backward()
        w, v = w - LR * w.grad, v - LR * v.grad
    return w.detach(), v.detach()


@gg.check(mesh={"tp": 3})
def check(mesh):
    return gg.Refinement(
        train,
        train_tp,
        inputs=(gg.tensor(OUT, DIM), gg.tensor(OUT, 7), gg.tensor(STEPS, BATCH, DIM), gg.tensor(STEPS, BATCH, 7)),
        in_relations=({"tp": Shard(0)}, {}, {}, {}),
        out_relations=({"tp": Shard(0)}, "replicate"),
        grads=False,
    )
