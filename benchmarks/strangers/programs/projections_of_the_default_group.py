"""A model runs on groups that are handed to it; its cross attention makes its projections without them, and they take the global ones. Megatron-LM.

Source: https://github.com/NVIDIA/Megatron-LM/issues/7452
Rule: wrong-group
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

SEQUENCE, MEMORY, BATCH, HIDDEN, HEADS, DIM = 4, 6, 4, 5, 2, 3
_GLOBAL = {}


def get_tensor_model_parallel_group_if_none(group):
    """The global one, where a layer was not given any."""
    return _GLOBAL["tp"] if group is None else group


@dataclass(frozen=True)
class ProcessGroups:
    """What a model communicates over."""

    tp: Any


def gather_along_first_dim(x, group):
    out = torch.empty(dist.get_world_size(group) * x.shape[0], *x.shape[1:])
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return out


def reduce_scatter_along_first_dim(x, group):
    out = torch.empty(x.shape[0] // dist.get_world_size(group), *x.shape[1:])
    dist.reduce_scatter_tensor(out, x.contiguous(), group=group)
    return out


class ColumnParallelLinear(nn.Module):
    """The sequence is gathered from the ranks that have it; each has some of the outputs."""

    def __init__(self, width_in, width_out, tp_group=None):
        super().__init__()
        self.tp_group = get_tensor_model_parallel_group_if_none(tp_group)
        self.weight = nn.Parameter(torch.empty(width_out // dist.get_world_size(self.tp_group), width_in))

    def forward(self, x):
        return gather_along_first_dim(x, self.tp_group) @ self.weight.t()  # near


class RowParallelLinear(nn.Module):
    """Sums over the ranks, each of which keeps its part of the sequence."""

    def __init__(self, width_in, width_out, tp_group=None):
        super().__init__()
        self.tp_group = get_tensor_model_parallel_group_if_none(tp_group)
        self.weight = nn.Parameter(torch.empty(width_out, width_in // dist.get_world_size(self.tp_group)))

    def forward(self, x):
        return reduce_scatter_along_first_dim(x @ self.weight.t(), self.tp_group)


def attention(q, k, v):
    """Sequence first."""
    scores = torch.einsum("qbhd,kbhd->bhqk", q, k) * DIM**-0.5
    return torch.einsum("bhqk,kbhd->qbhd", scores.softmax(-1), v)


class Linear(nn.Module):
    def __init__(self, width_in, width_out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width_out, width_in))

    def forward(self, x):
        return x @ self.weight.t()


class Attention(nn.Module):
    """What self attention and cross attention have in common."""

    def heads(self, x):
        return x.unflatten(-1, (-1, DIM))

    def forward(self, hidden, memory):
        q, k, v = (self.heads(proj(x)) for proj, x in self.projections(hidden, memory))
        return self.linear_proj(attention(q, k, v).flatten(-2))

    def projections(self, hidden, memory):
        return (self.linear_q, hidden), (self.linear_k, memory), (self.linear_v, memory)


class CrossAttention(Attention):
    def __init__(self, pg_collection):
        super().__init__()
        width = HEADS * DIM
        self.linear_q = ColumnParallelLinear(HIDDEN, width)  # fixed: self.linear_q = ColumnParallelLinear(HIDDEN, width, pg_collection.tp)
        self.linear_k = ColumnParallelLinear(HIDDEN, width)  # fixed: self.linear_k = ColumnParallelLinear(HIDDEN, width, pg_collection.tp)
        self.linear_v = ColumnParallelLinear(HIDDEN, width)  # fixed: self.linear_v = ColumnParallelLinear(HIDDEN, width, pg_collection.tp)
        self.linear_proj = RowParallelLinear(width, HIDDEN, pg_collection.tp)


class WholeCrossAttention(Attention):
    def __init__(self):
        super().__init__()
        self.linear_q, self.linear_k, self.linear_v = (Linear(HIDDEN, HEADS * DIM) for _ in range(3))
        self.linear_proj = Linear(HEADS * DIM, HIDDEN)


class DecoderLayer(nn.Module):
    """Cross attention and a residual."""

    def __init__(self, attention):
        super().__init__()
        self.cross_attention = attention

    def forward(self, hidden, memory):
        return hidden + self.cross_attention(hidden, memory)


def load_weights(state, layer, mesh):
    for name, parameter in layer.named_parameters():
        tensor = state[name].chunk(mesh["tp"].size(), dim=1 if "proj" in name else 0)
        with torch.no_grad():
            parameter.copy_(tensor[mesh.get_local_rank("tp")])


@gg.check(mesh={"tp": 2, "dp": 2})
def check(mesh):
    _GLOBAL["tp"] = mesh.get_group("dp")
    pg_collection = ProcessGroups(mesh.get_group("tp"))
    tokens = {"tp": Shard(0), "dp": Shard(1)}
    return gg.Refinement(
        DecoderLayer(WholeCrossAttention()),
        DecoderLayer(CrossAttention(pg_collection)),
        (gg.tensor(SEQUENCE, BATCH, HIDDEN), gg.tensor(MEMORY, BATCH, HIDDEN)),
        load=load_weights,
        in_relations=(tokens, tokens),
        out_relations=(tokens,),
        grads=False,
    )
