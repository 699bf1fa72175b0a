"""Megatron's MLP in a training loop, written by hand. Bias is inside F.linear before the reduction.

Rule: extra-reduction
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

STEPS, BATCH, DIM, HIDDEN, LR = 2, 5, 4, 9, 0.1


class CopyToTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class ReduceFromTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class ColumnParallelLinear(nn.Module):
    def __init__(self, dim, out, group):
        super().__init__()
        self.group = group
        self.linear = nn.Linear(dim, out // dist.get_world_size(group))

    def forward(self, x):
        return self.linear(CopyToTP.apply(x, self.group))


class RowParallelLinear(nn.Module):
    def __init__(self, dim, out, group):
        super().__init__()
        self.group = group
        self.weight = nn.Parameter(torch.empty(out, dim // dist.get_world_size(group)))
        self.bias = nn.Parameter(torch.zeros(out))
        nn.init.normal_(self.weight)

    def forward(self, x):
        y = F.linear(x, self.weight, self.bias)  # fixed: y = F.linear(x, self.weight)
        y = ReduceFromTP.apply(y, self.group)
        return y  # fixed: return y + self.bias


class MLP(nn.Module):
    def __init__(self, group=None):
        super().__init__()
        if group is None:
            self.up, self.down = nn.Linear(DIM, HIDDEN), nn.Linear(HIDDEN, DIM)
        else:
            self.up, self.down = ColumnParallelLinear(DIM, HIDDEN, group), RowParallelLinear(HIDDEN, DIM, group)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Loop(nn.Module):
    """Two layers and the whole training, as a module so that its parameters are compared."""

    def __init__(self, group=None):
        super().__init__()
        self.layers = nn.ModuleList(MLP(group) for _ in range(2))

    def forward(self, xs, ys):
        opt = torch.optim.SGD(self.parameters(), lr=LR)
        losses = []
        for step in range(STEPS):
            opt.zero_grad()
            h = xs[step]
            for layer in self.layers:
                h = h + layer(h)
            loss = F.mse_loss(h, ys[step])
            loss.backward()
            opt.step()
            losses.append(loss.detach())
        return losses


def load(state, impl, mesh):
    rank, size = mesh.get_local_rank("tp"), mesh["tp"].size()
    with torch.no_grad():
        for i, layer in enumerate(impl.layers):
            layer.up.linear.weight.copy_(state[f"layers.{i}.up.weight"].chunk(size)[rank])
            layer.up.linear.bias.copy_(state[f"layers.{i}.up.bias"].chunk(size)[rank])
            layer.down.weight.copy_(state[f"layers.{i}.down.weight"].chunk(size, 1)[rank])
            layer.down.bias.copy_(state[f"layers.{i}.down.bias"])


@gg.check(mesh={"tp": 3})
def check(mesh):
    shape = (STEPS, BATCH, DIM)
    return gg.Refinement(
        Loop(), Loop(mesh.get_group("tp")), (gg.tensor(*shape), gg.tensor(*shape)),
        load=load, out_relations="replicate", grads=False,
    )
