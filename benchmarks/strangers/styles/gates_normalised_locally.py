"""Experts over ep; gates are sigmoids, normalised to one over all experts.

The mistake: 'total' is the sum of the gates of the own experts: a partial sum over 'ep' that is divided by as if it were whole.

Rule: missing-reduction
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

HIDDEN, FFN, EXPERTS, SCALE = 5, 3, 6, 2.5


class MoEGate(nn.Module):
    def __init__(self, ep_group=None):
        super().__init__()
        self.ep_group = ep_group
        self.weight = nn.Parameter(torch.empty(EXPERTS, HIDDEN))

    def own(self, scores):
        if self.ep_group is None:
            return scores
        return scores.chunk(dist.get_world_size(self.ep_group), dim=-1)[dist.get_rank(self.ep_group)]

    def forward(self, x):
        scores = F.linear(x, self.weight).sigmoid()
        scores = self.own(scores)  # fixed:
        scores = scores / scores.sum(-1, keepdim=True)  # fault
        return scores * SCALE  # fixed: return self.own(scores) * SCALE


class Experts(nn.Module):
    def __init__(self, ep_group=None):
        super().__init__()
        number = EXPERTS // (1 if ep_group is None else dist.get_world_size(ep_group))
        self.gate_up_proj = nn.Parameter(torch.empty(number, HIDDEN, 2 * FFN))
        self.down_proj = nn.Parameter(torch.empty(number, FFN, HIDDEN))

    def forward(self, x, gates):
        gate, up = torch.einsum("th,ehf->etf", x, self.gate_up_proj).chunk(2, dim=-1)
        return torch.einsum("etf,efh,te->th", F.silu(gate) * up, self.down_proj, gates)


class MoE(nn.Module):
    def __init__(self, ep_group=None):
        super().__init__()
        self.ep_group = ep_group
        self.gate = MoEGate(ep_group)
        self.experts = Experts(ep_group)

    def forward(self, x):
        y = self.experts(x, self.gate(x))
        if self.ep_group is not None:
            dist.all_reduce(y, group=self.ep_group)
        return x + y


@gg.check(mesh={"ep": 2})
def check(mesh):
    return gg.Refinement(
        MoE(), MoE(mesh.get_group("ep")), (gg.tensor(7, HIDDEN),), out_relations="replicate", grads=False
    )
