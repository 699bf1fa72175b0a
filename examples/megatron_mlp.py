"""A tensor-parallel MLP in the manner of Megatron-LM: columns of the first weight and rows of the second are split over 'tp'."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg


class MLP(nn.Module):
    """The specification."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(dim, hidden)
        self.down = nn.Linear(hidden, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x)))


class CopyToTensorParallel(torch.autograd.Function):
    """Megatron's f: identity forward, all-reduce backward."""

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
    """Megatron's g: all-reduce forward, identity backward."""

    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class ColumnParallelLinear(nn.Module):
    """Holds a slice of the output features; every rank reads the whole input."""

    def __init__(self, dim: int, hidden: int, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.group = group
        ranks = dist.get_world_size(group)
        self.weight = nn.Parameter(torch.empty(hidden // ranks, dim))
        self.bias = nn.Parameter(torch.empty(hidden // ranks))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = CopyToTensorParallel.apply(x, self.group)
        return F.linear(x, self.weight, self.bias)


class RowParallelLinear(nn.Module):
    """Holds a slice of the input features; the summands of the ranks are added up, then the bias, once."""

    def __init__(self, hidden: int, dim: int, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.group = group
        ranks = dist.get_world_size(group)
        self.weight = nn.Parameter(torch.empty(dim, hidden // ranks))
        self.bias = nn.Parameter(torch.empty(dim))

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        y = F.linear(h, self.weight)
        y = ReduceFromTensorParallel.apply(y, self.group)
        return y + self.bias


class ParallelMLP(nn.Module):
    """The implementation."""

    def __init__(self, dim: int, hidden: int, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.up = ColumnParallelLinear(dim, hidden, group)
        self.down = RowParallelLinear(hidden, dim, group)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x)))


@gg.check(mesh=[{"tp": 2}, {"tp": 4}])
def mlp(mesh):
    return gg.Refinement(
        spec=MLP(6, 16),
        impl=ParallelMLP(6, 16, mesh.get_group("tp")),
        inputs=(gg.tensor(2, 5, 6),),
    )
