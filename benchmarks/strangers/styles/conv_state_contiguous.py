"""One decoding step of Mamba-2's causal convolution; channels are [x | B | C], each split over tp.

The mistake: the conv state is cut into contiguous parts; the rank's channels are its parts of x, B and C.

Rule: wrong-shard
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

HIDDEN, D_SSM, STATE, KERNEL = 5, 8, 4, 3
SECTIONS = (D_SSM, STATE, STATE)


def conv_step(xbc, conv_state, weight, bias):
    window = torch.cat([conv_state, xbc.unsqueeze(-1)], dim=-1)
    return F.silu((window * weight).sum(-1) + bias), window[..., 1:]


class MambaStep(nn.Module):
    def __init__(self):
        super().__init__()
        width = sum(SECTIONS)
        self.in_proj = nn.Linear(HIDDEN, width, bias=False)
        self.conv_weight = nn.Parameter(torch.empty(width, KERNEL))
        self.conv_bias = nn.Parameter(torch.empty(width))
        self.out_proj = nn.Linear(D_SSM, HIDDEN, bias=False)

    def forward(self, hidden, conv_state):
        xbc, _ = conv_step(self.in_proj(hidden), conv_state, self.conv_weight, self.conv_bias)
        x, b, c = xbc.split(SECTIONS, dim=-1)
        return self.out_proj(x * (b * c).sum(-1, keepdim=True))


class ParallelMambaStep(nn.Module):
    def __init__(self, step, group):
        super().__init__()
        self.group = group
        self.world, self.rank = dist.get_world_size(group), dist.get_rank(group)
        self.sections = [section // self.world for section in SECTIONS]
        self.in_proj = nn.Parameter(self.shard(step.in_proj.weight.detach(), 0))
        self.conv_weight = nn.Parameter(self.shard(step.conv_weight.detach(), 0))
        self.conv_bias = nn.Parameter(self.shard(step.conv_bias.detach(), 0))
        self.out_proj = nn.Parameter(step.out_proj.weight.detach().chunk(self.world, dim=1)[self.rank].clone())

    def shard(self, t, dim):
        """The own part of each section."""
        return torch.cat([part.chunk(self.world, dim)[self.rank] for part in t.split(SECTIONS, dim)], dim)

    def local_state(self, conv_state):
        return conv_state.chunk(self.world, 1)[self.rank]  # fixed: return self.shard(conv_state, 1)

    def forward(self, hidden, conv_state):
        state = self.local_state(conv_state)  # fault
        xbc, _ = conv_step(hidden @ self.in_proj.t(), state, self.conv_weight, self.conv_bias)
        x, b, c = xbc.split(self.sections, dim=-1)
        dot = (b * c).sum(-1, keepdim=True)
        dist.all_reduce(dot, group=self.group)
        y = (x * dot) @ self.out_proj.t()
        dist.all_reduce(y, group=self.group)
        return y


@gg.check(mesh={"tp": 2})
def check(mesh):
    step = MambaStep()
    return gg.Refinement(
        step,
        ParallelMambaStep(step, mesh.get_group("tp")),
        (gg.tensor(3, HIDDEN), gg.tensor(3, sum(SECTIONS), KERNEL - 1)),
        out_relations="replicate",
        grads=False,
    )
