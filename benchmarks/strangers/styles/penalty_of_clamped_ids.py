"""Frequency penalty on logits whose vocabulary is split, before they are gathered.

The mistake: previous ids outside of a rank's part are clamped to its first or last token, which is then penalised too: multiply by 'inside'.

Rule: wrong-shard, wrong-relation, extra-reduction
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

VOCAB, HIDDEN, PENALTY = 8, 5, 0.4


def sequential(hidden, weight, generated):
    logits = F.linear(hidden, weight)
    counts = F.one_hot(generated, VOCAB).sum(1)
    return (logits - PENALTY * counts).log_softmax(-1)


class VocabParallelSampler:
    def __init__(self, group):
        self.group = group
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        self.size = VOCAB // self.world
        self.start = self.rank * self.size

    def token_counts(self, generated):
        """How often each token of the own part was generated."""
        local = generated - self.start
        inside = (local >= 0) & (local < self.size)
        hits = F.one_hot(local.clamp(0, self.size - 1), self.size)  # fault
        return hits.sum(1)  # fixed: return (hits * inside.unsqueeze(-1)).sum(1)

    def gather(self, logits):
        parts = [torch.empty_like(logits) for _ in range(self.world)]
        dist.all_gather(parts, logits.contiguous(), group=self.group)
        return torch.cat(parts, dim=-1)

    def __call__(self, hidden, weight, generated):
        logits = F.linear(hidden, weight) - PENALTY * self.token_counts(generated)
        return self.gather(logits).log_softmax(-1)


@gg.check(mesh={"tp": 2})
def check(mesh):
    return gg.Refinement(
        sequential,
        VocabParallelSampler(mesh.get_group("tp")),
        (gg.tensor(3, HIDDEN), gg.tensor(VOCAB, HIDDEN), gg.tensor(3, 4, dtype=torch.int64, high=VOCAB)),
        in_relations=({}, {"tp": Shard(0)}, {}),
        out_relations="replicate",
        grads=False,
    )
