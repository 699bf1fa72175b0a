"""A mixture of experts whose experts are split over 'ep': every rank runs its own experts on all tokens, and the results are added up."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

EXPERTS_PER_TOKEN = 2


class Router(nn.Module):
    """The weight of every expert for every token: zero but for the chosen ones."""

    def __init__(self, dim: int, experts: int) -> None:
        super().__init__()
        self.score = nn.Linear(dim, experts, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = F.softmax(self.score(x), dim=-1)
        chosen, index = scores.topk(EXPERTS_PER_TOKEN, dim=-1)
        return torch.zeros_like(scores).scatter(-1, index, chosen)


class Experts(nn.Module):
    """The feed-forward networks, stacked: weights of shape (experts, ...)."""

    def __init__(self, dim: int, hidden: int, experts: int) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.empty(experts, hidden, dim))
        self.down = nn.Parameter(torch.empty(experts, dim, hidden))

    def forward(self, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        h = F.silu(torch.einsum("td,ehd->teh", x, self.up))
        y = torch.einsum("teh,edh->ted", h, self.down)
        return (weights.unsqueeze(-1) * y).sum(1)


class MoE(nn.Module):
    """The specification."""

    def __init__(self, dim: int, hidden: int, experts: int) -> None:
        super().__init__()
        self.router = Router(dim, experts)
        self.experts = Experts(dim, hidden, experts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.experts(x, self.router(x))


class CopyToExpertParallel(torch.autograd.Function):
    """Identity forward, all-reduce backward."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class ReduceFromExpertParallel(torch.autograd.Function):
    """All-reduce forward, identity backward."""

    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class ParallelMoE(nn.Module):
    """The implementation: the router is the same on all ranks."""

    def __init__(self, dim: int, hidden: int, experts: int, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.group = group
        self.router = Router(dim, experts)
        self.experts = Experts(dim, hidden, experts // dist.get_world_size(group))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = CopyToExpertParallel.apply(self.router(x), self.group)
        x = CopyToExpertParallel.apply(x, self.group)
        own = weights.chunk(dist.get_world_size(self.group), dim=-1)[dist.get_rank(self.group)]
        return ReduceFromExpertParallel.apply(self.experts(x, own), self.group)


@gg.check(mesh={"ep": 2})
def moe(mesh):
    return gg.Refinement(
        spec=MoE(6, 10, 4),
        impl=ParallelMoE(6, 10, 4, mesh.get_group("ep")),
        inputs=(gg.tensor(5, 6),),
        out_relations="replicate",
    )
