"""An MLP made tensor-parallel by PyTorch's own `parallelize_module`."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import graphguard as gg


class MLP(nn.Module):
    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(dim, hidden)
        self.down = nn.Linear(hidden, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.relu(self.up(x)))


@gg.check(mesh={"tp": 2})
def dtensor_mlp(mesh):
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    return gg.Refinement(
        spec=MLP(6, 16),
        impl=parallelize_module(MLP(6, 16), mesh["tp"], plan),
        inputs=(gg.tensor(2, 5, 6),),
        out_relations="replicate",
    )
