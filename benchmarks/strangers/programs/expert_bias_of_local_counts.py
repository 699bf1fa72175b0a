"""Balancing without a loss: the experts' bias moves by the sign of what one rank counts, in the manner of torchtitan's and Megatron's updates.

Source: a mistake of a kind that is reported of such code; no single report was looked up.
Rule: missing-reduction, nonlinear-on-partial
"""

import torch
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

EXPERTS, DIM, TOKENS, COEFFICIENT = 4, 3, 6, 0.01


class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(EXPERTS, DIM))

    def forward(self, x, expert_bias):
        scores = torch.sigmoid(x @ self.weight.T)
        choice = scores + expert_bias
        selected = choice >= choice.topk(2, dim=-1).values[:, -1:]
        return scores * selected, selected


class MoE(nn.Module):
    """Tokens are weighed by their experts' scores; the bias is updated from how many tokens every expert got."""

    def __init__(self, group=None):
        super().__init__()
        self.group = group
        self.router = Router()
        self.values = nn.Parameter(torch.empty(EXPERTS, DIM))

    def updated_bias(self, tokens_per_expert, expert_bias):
        average = tokens_per_expert.mean()
        offset = average - tokens_per_expert
        return expert_bias + COEFFICIENT * torch.sign(offset)

    def forward(self, x, expert_bias):
        scores, selected = self.router(x, expert_bias)
        out = x + scores @ self.values
        tokens_per_expert = selected.sum(0).to(torch.float32)
        return out, self.updated_bias(tokens_per_expert, expert_bias)


class ParallelMoE(MoE):
    def forward(self, x, expert_bias):
        scores, selected = self.router(x, expert_bias)
        out = x + scores @ self.values
        tokens_per_expert = selected.sum(0).to(torch.float32)  # fault
        # fixed, insert: dist.all_reduce(tokens_per_expert, group=self.group)
        return out, self.updated_bias(tokens_per_expert, expert_bias)


@gg.check(mesh={"dp": 2})
def check(mesh):
    return gg.Refinement(
        MoE(),
        ParallelMoE(mesh.get_group("dp")),
        (gg.tensor(TOKENS, DIM), gg.tensor(EXPERTS)),
        in_relations=({"dp": Shard(0)}, {}),
        out_relations=({"dp": Shard(0)}, {}),
        grads=False,
    )
