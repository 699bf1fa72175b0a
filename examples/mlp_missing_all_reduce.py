"""The tensor-parallel MLP with its all-reduce forgotten: every rank returns its own summand of the output."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg


class MLP(nn.Module):
    """The specification."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x)))


class ParallelMLP(nn.Module):
    """Columns of `up` and rows of `down` are split over the ranks of the group."""

    def __init__(self, dim: int, hidden: int, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.group = group
        ranks = dist.get_world_size(group)
        self.up = nn.Linear(dim, hidden // ranks, bias=False)
        self.down = nn.Linear(hidden // ranks, dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.gelu(self.up(x))
        y = self.down(h)
        return y


@gg.check(mesh={"tp": 2})
def mlp_missing_all_reduce(mesh):
    return gg.Refinement(
        spec=MLP(6, 16),
        impl=ParallelMLP(6, 16, mesh.get_group("tp")),
        inputs=(gg.tensor(2, 5, 6),),
        out_relations="replicate",
        grads=False,
    )
