"""Tensor-parallel attention. View(.., HEAD_DIM, heads) instead of (.., heads, HEAD_DIM).

Rule: wrong-shard, wrong-relation
"""
import math

import torch
import torch.distributed as dist
from torch import nn

import graphguard as gg

BATCH, SEQ, DIM, HEADS, HEAD_DIM = 2, 5, 7, 6, 4


class CopyIn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class ReduceOut(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.contiguous()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def attend(q, k, v):
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    mask = torch.ones(SEQ, SEQ, dtype=torch.bool).tril()
    scores = scores.masked_fill(~mask, float("-inf"))
    return (scores.softmax(-1) @ v).transpose(1, 2)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        inner = HEADS * HEAD_DIM
        self.q = nn.Linear(DIM, inner, bias=False)
        self.k = nn.Linear(DIM, inner, bias=False)
        self.v = nn.Linear(DIM, inner, bias=False)
        self.o = nn.Linear(inner, DIM, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (proj(x).view(b, t, HEADS, HEAD_DIM) for proj in (self.q, self.k, self.v))
        return self.o(attend(q, k, v).reshape(b, t, -1))


class ParallelAttention(nn.Module):
    def __init__(self, group):
        super().__init__()
        self.group = group
        self.heads = HEADS // dist.get_world_size(group)
        inner = self.heads * HEAD_DIM
        self.q = nn.Linear(DIM, inner, bias=False)
        self.k = nn.Linear(DIM, inner, bias=False)
        self.v = nn.Linear(DIM, inner, bias=False)
        self.o = nn.Linear(inner, DIM, bias=False)

    def split_heads(self, x):
        b, t, _ = x.shape
        return x.view(b, t, HEAD_DIM, self.heads)  # fixed: return x.view(b, t, self.heads, HEAD_DIM)

    def forward(self, x):
        b, t, _ = x.shape
        x = CopyIn.apply(x, self.group)
        q, k, v = self.split_heads(self.q(x)), self.split_heads(self.k(x)), self.split_heads(self.v(x))
        out = attend(q, k, v).reshape(b, t, -1)
        return ReduceOut.apply(self.o(out), self.group)


@gg.check(mesh={"tp": 3})
def check(mesh):
    return gg.Refinement(
        Attention(), ParallelAttention(mesh.get_group("tp")), (gg.tensor(BATCH, SEQ, DIM),), out_relations="replicate"
    )
