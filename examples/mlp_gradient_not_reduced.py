"""The tensor-parallel MLP with a right forward pass and a wrong backward pass: the gradient of the input is never added up."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg


class Layer(nn.Module):
    """The specification: the norm before the MLP is trained, too, so it needs the whole gradient of the MLP's input."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(self.norm(x))))


class CopyToTensorParallel(torch.autograd.Function):
    """Identity forward, all-reduce backward. Nobody calls it here."""

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
    """All-reduce forward, identity backward."""

    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class ParallelLayer(nn.Module):
    """Columns of `up` and rows of `down` are split over the ranks of the group; the norm is the same on all."""

    def __init__(self, dim: int, hidden: int, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.group = group
        ranks = dist.get_world_size(group)
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, hidden // ranks, bias=False)
        self.down = nn.Linear(hidden // ranks, dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x)
        h = F.gelu(self.up(x))
        y = self.down(h)
        return ReduceFromTensorParallel.apply(y, self.group)


@gg.check(mesh={"tp": 2})
def mlp_gradient_not_reduced(mesh):
    return gg.Refinement(
        spec=Layer(6, 16),
        impl=ParallelLayer(6, 16, mesh.get_group("tp")),
        inputs=(gg.tensor(2, 5, 6),),
    )
