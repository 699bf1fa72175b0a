"""An MLP block with Megatron's sequence parallelism: norms and residuals see a part of the sequence, the products all of it."""

import torch
import torch.nn.functional as F
from mappings import (
    _reduce,
    gather_from_sequence_parallel_region,
    get_tensor_model_parallel_world_size,
    initialize_model_parallel,
    reduce_scatter_to_sequence_parallel_region,
    scatter_to_sequence_parallel_region,
)
from torch import nn

import graphguard as gg

TOKENS, DIM, HIDDEN = 6, 5, 8


class Block(nn.Module):
    """The specification: (tokens, batch, features) in and out."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.up = nn.Linear(DIM, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, DIM)

    def forward(self, x):
        return x + self.down(F.silu(self.up(self.norm(x))))


class ReduceParameterGradient(torch.autograd.Function):
    """A parameter that every rank uses on its part of the sequence: its gradient is the sum over the ranks."""

    @staticmethod
    def forward(ctx, parameter):
        return parameter.view_as(parameter)

    @staticmethod
    def backward(ctx, grad):
        return _reduce(grad)


class ParallelBlock(nn.Module):
    """The implementation."""

    def __init__(self):
        super().__init__()
        ranks = get_tensor_model_parallel_world_size()
        self.norm = nn.LayerNorm(DIM)
        self.up = nn.Linear(DIM, HIDDEN // ranks, bias=False)
        self.down = nn.Module()
        self.down.weight = nn.Parameter(torch.empty(DIM, HIDDEN // ranks))
        self.down.bias = nn.Parameter(torch.empty(DIM))

    def forward(self, x):
        local = scatter_to_sequence_parallel_region(x)
        weight = ReduceParameterGradient.apply(self.norm.weight)
        shift = ReduceParameterGradient.apply(self.norm.bias)
        normed = F.layer_norm(local, (DIM,), weight, shift)
        whole = gather_from_sequence_parallel_region(normed)
        h = F.silu(self.up(whole))
        partial = F.linear(h, self.down.weight)
        y = reduce_scatter_to_sequence_parallel_region(partial)
        bias = ReduceParameterGradient.apply(self.down.bias)
        y = y + bias
        y = local + y
        return gather_from_sequence_parallel_region(y, tensor_parallel_output_grad=False)


@gg.check(mesh={"tp": 2})
def sequence_parallel(mesh):
    initialize_model_parallel(mesh.get_group("tp"))
    return gg.Refinement(Block(), ParallelBlock(), (gg.tensor(TOKENS, 2, DIM),), out_relations="replicate")
