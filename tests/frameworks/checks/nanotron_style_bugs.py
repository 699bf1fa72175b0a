"""Natural mistakes in nanotron's idiom."""

import torch.distributed as dist
from nanotron_style import (
    INNER,
    MLP,
    TEXT,
    WIDTH,
    ParallelMLP,
    Stage,
    TensorParallelColumnLinear,
    Whole,
    tied_step,
    whole_step,
)
from torch.nn import functional as F

import graphguard as gg


def averages(model, group):
    dist.all_reduce(model.embedding.weight.grad, op=dist.ReduceOp.AVG, group=group)  # the mistake


@gg.check(mesh={"pp": 2})
def tied_gradients_are_averaged(mesh):
    index = mesh.get_local_rank("pp")
    return gg.Refinement(whole_step(Whole()), tied_step(Stage(index), index, mesh.get_group("pp"), averages), TEXT)


class WithoutIdentity(TensorParallelColumnLinear):
    def forward(self, x):
        return F.linear(x, self.weight)  # the mistake


@gg.check(mesh={"tp": 2})
def no_sum_in_the_backward_of_the_column_linear(mesh):
    model = ParallelMLP(mesh.get_group("tp"), "ALL_REDUCE")
    model.up = WithoutIdentity(WIDTH, INNER, mesh.get_group("tp"), "ALL_REDUCE")
    return gg.Refinement(MLP(), model, (gg.tensor(6, WIDTH),), out_relations="replicate")
