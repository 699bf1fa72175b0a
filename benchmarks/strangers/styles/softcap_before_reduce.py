"""Gemma 2: the head's input is split over the ranks (as the last layer leaves it), logits are capped.

The mistake: 'logits' is a partial sum over 'tp' where tanh is taken of it; the all-reduce comes after.

Rule: nonlinear-on-partial, missing-reduction
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

VOCAB, HIDDEN, FFN, CAP = 9, 6, 8, 30.0


def softcap(logits, cap):
    return torch.tanh(logits / cap) * cap


class Gemma2Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(FFN, HIDDEN)
        self.lm_head = nn.Linear(HIDDEN, VOCAB, bias=False)

    def forward(self, x):
        return softcap(self.lm_head(F.gelu(self.up(x), approximate="tanh")), CAP)


class LogitsProcessor:
    """As in vLLM: logits of a sharded head, made whole, and scaled or capped."""

    def __init__(self, group, soft_cap=None, scale=1.0):
        self.group, self.soft_cap, self.scale = group, soft_cap, scale

    def _gather_logits(self, logits):
        dist.all_reduce(logits, group=self.group)
        return logits

    def __call__(self, weight, hidden_states):
        logits = F.linear(hidden_states, weight)  # fault
        # fixed, insert: logits = self._gather_logits(logits)
        if self.soft_cap is not None:  # fault
            logits = softcap(logits, self.soft_cap)
        if self.scale != 1.0:
            logits = logits * self.scale
        logits = self._gather_logits(logits)  # fixed:
        return logits


class ParallelGemma2Head(nn.Module):
    def __init__(self, head, group):
        super().__init__()
        world, rank = dist.get_world_size(group), dist.get_rank(group)
        self.up_weight = nn.Parameter(head.up.weight.detach().chunk(world)[rank].clone())
        self.up_bias = nn.Parameter(head.up.bias.detach().chunk(world)[rank].clone())
        self.lm_head = nn.Parameter(head.lm_head.weight.detach().chunk(world, dim=1)[rank].clone())
        self.logits_processor = LogitsProcessor(group, soft_cap=CAP)

    def forward(self, x):
        hidden = F.gelu(F.linear(x, self.up_weight, self.up_bias), approximate="tanh")
        return self.logits_processor(self.lm_head, hidden)


@gg.check(mesh={"tp": 3})
def check(mesh):
    head = Gemma2Head()
    return gg.Refinement(
        head, ParallelGemma2Head(head, mesh.get_group("tp")), (gg.tensor(2, 5, FFN),), out_relations="replicate", grads=False
    )
