"""Expert parallelism with redundant experts: hot ones stand on every rank, and the replicas share the work.

The mistake: expert 0 (and 3) stands on both ranks, and both add its whole output: it counts twice.

Rule: wrong-scale, extra-reduction
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

HIDDEN, FFN, EXPERTS = 4, 6, 5
PLACEMENT = ((0, 1, 3), (2, 0, 3, 4))
"""Which logical experts stand on which rank."""


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Linear(HIDDEN, FFN, bias=False)
        self.w2 = nn.Linear(FFN, HIDDEN, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)))


class MoE(nn.Module):
    def __init__(self, experts=tuple(range(EXPERTS))):
        super().__init__()
        self.gate = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.experts = nn.ModuleDict({str(e): Expert() for e in experts})

    def forward(self, x):
        scores = self.gate(x).softmax(-1)
        return sum(scores[..., int(e), None] * expert(x) for e, expert in self.experts.items())


def replica_counts(placement):
    counts = [0] * EXPERTS
    for experts in placement:
        for e in experts:
            counts[e] += 1
    return counts


class ExpertParallelMoE(MoE):
    def __init__(self, group):
        super().__init__(PLACEMENT[dist.get_rank(group)])
        self.group = group
        self.replicas = replica_counts(PLACEMENT)

    def forward(self, x):
        scores = self.gate(x).softmax(-1)
        out = torch.zeros_like(x)
        for e, expert in self.experts.items():
            weight = scores[..., int(e), None]  # fixed: weight = scores[..., int(e), None] / self.replicas[int(e)]
            out = out + weight * expert(x)  # fault
        dist.all_reduce(out, group=self.group)  # fault
        return out


@gg.check(mesh={"ep": 2})
def check(mesh):
    return gg.Refinement(
        MoE(), ExpertParallelMoE(mesh.get_group("ep")), (gg.tensor(7, HIDDEN),), out_relations="replicate", grads=False
    )
