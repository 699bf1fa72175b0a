"""Multi-query attention: the one key-value head stands on every tensor rank, its gradients are summed at the end.

The mistake: the gradient of 'attention.key_value.bias' is each rank's own over 'tp': only weights are reduced.

Rule: gradient-not-reduced, missing-reduction
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

HIDDEN, HEADS, HEAD_DIM, LR = 5, 4, 3, 0.1


class CopyToModelParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class ReduceFromModelParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class MultiQueryAttention(nn.Module):
    def __init__(self, group=None):
        super().__init__()
        self.group = group
        world = 1 if group is None else dist.get_world_size(group)
        self.query = nn.Linear(HIDDEN, HEADS // world * HEAD_DIM, bias=False)
        self.key_value = nn.Linear(HIDDEN, 2 * HEAD_DIM)
        self.dense = nn.Linear(HEADS // world * HEAD_DIM, HIDDEN, bias=False)

    def forward(self, x):
        if self.group is not None:
            x = CopyToModelParallelRegion.apply(x, self.group)
        q = self.query(x).unflatten(-1, (-1, HEAD_DIM))
        k, v = self.key_value(x).chunk(2, dim=-1)
        probs = (torch.einsum("bqhd,bkd->bhqk", q, k) * HEAD_DIM**-0.5).softmax(-1)
        y = self.dense(torch.einsum("bhqk,bkd->bqhd", probs, v).flatten(2))
        return y if self.group is None else ReduceFromModelParallelRegion.apply(y, self.group)


class Layer(nn.Module):
    def __init__(self, group=None):
        super().__init__()
        self.group = group
        self.norm = nn.LayerNorm(HIDDEN)
        self.attention = MultiQueryAttention(group)

    def forward(self, x):
        return x + self.attention(self.norm(x))


def allreduce_key_value_grads(model, group):
    grads = [p.grad for name, p in model.named_parameters() if "key_value.weight" in name]  # fixed: grads = [p.grad for name, p in model.named_parameters() if "key_value" in name]
    coalesced = torch.cat([g.flatten() for g in grads])
    dist.all_reduce(coalesced, group=group)
    for g, synced in zip(grads, coalesced.split([g.numel() for g in grads]), strict=True):
        g.copy_(synced.view_as(g))


def train_step(model):
    def step(x, target):
        optimizer = torch.optim.SGD(model.parameters(), lr=LR)
        F.mse_loss(model(x), target).backward()
        if model.group is not None:
            allreduce_key_value_grads(model, model.group)
        optimizer.step()
        return dict(model.named_parameters())

    return step


@gg.check(mesh={"tp": 2})
def check(mesh):
    x = gg.tensor(2, 4, HIDDEN)
    whole = {"tp": Replicate()}
    return gg.Refinement(
        train_step(Layer()),
        train_step(Layer(mesh.get_group("tp"))),
        (x, x),
        out_relations={
            "norm.*": whole,
            "attention.query.weight": {"tp": Shard(0)},
            "attention.key_value.*": whole,
            "attention.dense.weight": {"tp": Shard(1)},
        },
        grads=False,
    )
