"""Data x tensor parallel MLP with a manual loop. Gradients are averaged over the world (dp x tp) instead of the dp group.

Rule: wrong-group
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

STEPS, BATCH, DIM, HIDDEN = 2, 6, 4, 10


class F_(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous()
        dist.all_reduce(g, group=ctx.group)
        return g, None


class G_(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, g):
        return g, None


class MLP(nn.Module):
    def __init__(self, tp=None, dp=None):
        super().__init__()
        self.tp, self.dp = tp, dp
        parts = 1 if tp is None else dist.get_world_size(tp)
        self.norm = nn.LayerNorm(DIM)
        self.up = nn.Linear(DIM, HIDDEN // parts, bias=False)
        self.down = nn.Linear(HIDDEN // parts, DIM, bias=False)

    def net(self, x):
        x = self.norm(x)
        if self.tp is not None:
            x = F_.apply(x, self.tp)
        y = self.down(F.relu(self.up(x)))
        if self.tp is not None:
            y = G_.apply(y, self.tp)
        return y

    def sync(self):
        world = dist.get_world_size()  # fixed: world = dist.get_world_size(self.dp)
        for p in self.parameters():
            dist.all_reduce(p.grad)  # fixed: dist.all_reduce(p.grad, group=self.dp)
            p.grad /= world

    def forward(self, xs, ys):
        opt = torch.optim.SGD(self.parameters(), lr=0.1)
        for x, y in zip(xs, ys):
            opt.zero_grad()
            F.mse_loss(self.net(x), y).backward()
            if self.dp is not None:
                self.sync()
            opt.step()
        return dict(self.named_parameters())


@gg.check(mesh={"dp": 3, "tp": 2})
def check(mesh):
    return gg.Refinement(
        MLP(), MLP(mesh.get_group("tp"), mesh.get_group("dp")),
        (gg.tensor(STEPS, BATCH, DIM), gg.tensor(STEPS, BATCH, DIM)),
        in_relations={"dp": Shard(1)}, grads=False,
    )
