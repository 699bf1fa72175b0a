"""Qwen2-MoE's shared expert: its output is gated by a sigmoid of the hidden states, which are split along their last dim.

The mistake: 'gate' is a partial sum over 'tp' (the input's columns are split) where the sigmoid is taken of it.

Rule: nonlinear-on-partial, missing-reduction
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

HIDDEN, FFN = 8, 6


class SharedExpert(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj = nn.Linear(HIDDEN, FFN, bias=False)
        self.up_proj = nn.Linear(HIDDEN, FFN, bias=False)
        self.down_proj = nn.Linear(FFN, HIDDEN, bias=False)
        self.shared_expert_gate = nn.Linear(HIDDEN, 1, bias=False)

    def forward(self, x):
        y = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return torch.sigmoid(self.shared_expert_gate(x)) * y


def tensor_model_parallel_all_reduce(x, group):
    dist.all_reduce(x, group=group)
    return x


class InputShardedLinear(nn.Module):
    """Its input is split along the features, and so is its weight; the sum is left to the caller, who may have more to add."""

    def __init__(self, linear, world, rank):
        super().__init__()
        self.weight = nn.Parameter(linear.weight.detach().chunk(world, dim=1)[rank].clone())

    def forward(self, x):
        return F.linear(x, self.weight)


class ParallelSharedExpert(nn.Module):
    """Every layer takes the own features, and gives the own ones back."""

    def __init__(self, expert, group):
        super().__init__()
        self.group = group
        world, rank = dist.get_world_size(group), dist.get_rank(group)
        self.gate_proj = InputShardedLinear(expert.gate_proj, world, rank)
        self.up_proj = InputShardedLinear(expert.up_proj, world, rank)
        self.shared_expert_gate = InputShardedLinear(expert.shared_expert_gate, world, rank)
        self.down_proj = nn.Parameter(expert.down_proj.weight.detach().chunk(world)[rank].clone())

    def forward(self, x):
        projected = torch.cat([self.gate_proj(x), self.up_proj(x)], dim=-1)
        gate, up = tensor_model_parallel_all_reduce(projected, self.group).chunk(2, dim=-1)
        y = F.linear(F.silu(gate) * up, self.down_proj)
        score = self.shared_expert_gate(x)  # fault
        # fixed, insert: score = tensor_model_parallel_all_reduce(score, self.group)
        return torch.sigmoid(score) * y  # fault


@gg.check(mesh={"tp": 2})
def check(mesh):
    expert = SharedExpert()
    return gg.Refinement(
        expert,
        ParallelSharedExpert(expert, mesh.get_group("tp")),
        (gg.tensor(5, HIDDEN),),
        in_relations={"tp": Shard(1)},
        out_relations={"tp": Shard(1)},
        grads=False,
    )
