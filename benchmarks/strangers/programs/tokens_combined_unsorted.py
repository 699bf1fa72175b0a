"""Expert parallelism: what the experts give back is put at the places of the sorted tokens a second time, not at their own.

Source: a mistake of a kind that is reported of such code; no single report was looked up.
Rule: wrong-relation, wrong-shard
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

EXPERTS, DIM, HIDDEN = 4, 3, 5
# which expert every token of a rank goes to; as many for each
ASSIGNED = torch.tensor([3, 0, 2, 1, 0, 3, 1, 2])


class GroupedExperts(nn.Module):
    def __init__(self, num_experts):
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(num_experts, DIM, HIDDEN))
        self.w2 = nn.Parameter(torch.empty(num_experts, HIDDEN, DIM))

    def forward(self, x):
        """(experts, tokens, dim)"""
        return torch.bmm(torch.relu(torch.bmm(x, self.w1)), self.w2)


class MoE(nn.Module):
    """The specification: tokens of both ranks, one after the other."""

    def __init__(self):
        super().__init__()
        self.experts = GroupedExperts(EXPERTS)
        self.gate = nn.Linear(DIM, 1)

    def forward(self, x):
        scores = torch.sigmoid(self.gate(x))
        everywhere = self.experts(x.expand(EXPERTS, -1, -1))
        assigned = ASSIGNED.repeat(len(x) // len(ASSIGNED))
        return x + scores * everywhere[assigned, torch.arange(len(x))]


class TokenReorderer(nn.Module):
    def forward(self, x):
        token_indices = torch.argsort(ASSIGNED, stable=True)
        return x[token_indices], token_indices


class ParallelMoE(nn.Module):
    def __init__(self, group):
        super().__init__()
        self.group = group
        self.ep = dist.get_world_size(group)
        self.experts = GroupedExperts(EXPERTS // self.ep)
        self.gate = nn.Linear(DIM, 1)
        self.reorderer = TokenReorderer()

    def exchange(self, x):
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x.contiguous(), group=self.group)
        return out

    def dispatch(self, routed):
        routed = self.exchange(routed)
        per_rank = routed.view(self.ep, EXPERTS // self.ep, -1, DIM)
        return per_rank.transpose(0, 1).flatten(1, 2)

    def combine(self, out):
        per_expert = out.view(EXPERTS // self.ep, self.ep, -1, DIM)
        return self.exchange(per_expert.transpose(0, 1).reshape(-1, DIM))

    def forward(self, x):
        scores = torch.sigmoid(self.gate(x))
        routed_input, token_indices = self.reorderer(x)
        routed_output = self.experts(self.dispatch(routed_input))
        routed_output = self.combine(routed_output)
        out = routed_output[token_indices]  # fixed: out = routed_output[torch.argsort(token_indices)]
        return x + scores * out


@gg.check(mesh={"ep": 2})
def check(mesh):
    rows = {"ep": Shard(0)}
    impl = ParallelMoE(mesh.get_group("ep"))
    return gg.Refinement(MoE(), impl, (gg.tensor(16, DIM),), in_relations=rows, out_relations=rows, grads=False)
