"""Natural mistakes with fairscale's layers."""

import fairscale.nn.model_parallel as model_parallel
import torch
from fairscale.nn.model_parallel.layers import ColumnParallelLinear
from torch import nn
from torch.nn import functional as F

import graphguard as gg

DIM, HIDDEN = 8, 16


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(DIM, HIDDEN)
        self.down = nn.Linear(HIDDEN, DIM, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(x)))


class ForgetsToReduce(MLP):
    def __init__(self) -> None:
        super().__init__()
        self.up = ColumnParallelLinear(DIM, HIDDEN, gather_output=False, init_method=lambda weight: weight)
        self.down = nn.Linear(HIDDEN // model_parallel.initialize.get_model_parallel_world_size(), DIM, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        product = self.down(F.gelu(self.up(x)))  # the mistake
        return x + product


@gg.check(mesh={"mp": 2})
def plain_layer_after_a_sharded_one(mesh):
    model_parallel.initialize_model_parallel(mesh.size())
    return gg.Refinement(MLP(), ForgetsToReduce(), (gg.tensor(3, DIM),), out_relations="replicate")
