"""Context parallelism: every rank has a part of the sequence; keys and values are gathered. Rotary positions of q and k start at 0 on each rank (the mask is right).

Rule: wrong-shard, wrong-relation
"""
import math

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

SEQ, DIM, HEADS, HEAD_DIM = 6, 5, 2, 4


class GatherSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, grad):
        size, rank = dist.get_world_size(ctx.group), dist.get_rank(ctx.group)
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad.chunk(size)[rank], None


def rope(x, positions):
    half = HEAD_DIM // 2
    freqs = 10000.0 ** (-torch.arange(half) / half)
    angles = positions[:, None] * freqs
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class Attention(nn.Module):
    def __init__(self, group=None):
        super().__init__()
        self.group = group
        self.qkv = nn.Linear(DIM, 3 * HEADS * HEAD_DIM, bias=False)
        self.out = nn.Linear(HEADS * HEAD_DIM, DIM, bias=False)

    def forward(self, x):
        length = x.shape[0]
        start = 0
        if self.group is not None:
            start = dist.get_rank(self.group) * length
        positions = torch.arange(start, start + length)
        q, k, v = self.qkv(x).view(length, 3, HEADS, HEAD_DIM).unbind(1)
        local = torch.arange(length)  # fixed:
        q, k = rope(q, local), rope(k, local)  # fixed: q, k = rope(q, positions), rope(k, positions)
        if self.group is not None:
            k, v = GatherSequence.apply(k, self.group), GatherSequence.apply(v, self.group)
        scores = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(HEAD_DIM)
        visible = positions[:, None] >= torch.arange(k.shape[0])[None]
        scores = scores.masked_fill(~visible, float("-inf"))
        y = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v)
        return self.out(y.reshape(length, -1))


class Step(nn.Module):
    def __init__(self, group=None):
        super().__init__()
        self.group = group
        self.attention = Attention(group)

    def forward(self, xs, ys):
        opt = torch.optim.SGD(self.parameters(), lr=0.1)
        for x, y in zip(xs, ys):
            opt.zero_grad()
            (self.attention(x) - y).square().sum().div(SEQ).backward()
            if self.group is not None:
                for p in self.parameters():
                    dist.all_reduce(p.grad, group=self.group)
            opt.step()
        return dict(self.named_parameters())


@gg.check(mesh={"cp": 3})
def check(mesh):
    shape = (2, SEQ, DIM)
    return gg.Refinement(
        Step(), Step(mesh.get_group("cp")), (gg.tensor(*shape), gg.tensor(*shape)),
        in_relations={"cp": Shard(1)}, out_relations="replicate", grads=False,
    )
