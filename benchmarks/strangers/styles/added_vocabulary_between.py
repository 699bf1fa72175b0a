"""A head with added vocabulary: every rank has a part of the original and a part of the added tokens.

The mistake: gathered logits are [original of rank 0 | added of rank 0 | original of rank 1 | ...]: the order of the vocabulary is original, then added.

Rule: wrong-shard, wrong-relation
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

HIDDEN, ORIGINAL, ADDED, TOKENS = 5, 8, 4, 3


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(ORIGINAL + ADDED, HIDDEN))

    def forward(self, hidden, temperature):
        return (F.linear(hidden, self.weight) / temperature[:, None]).softmax(-1)


class VocabParallelHead(nn.Module):
    def __init__(self, head, group):
        super().__init__()
        self.group = group
        self.world, rank = dist.get_world_size(group), dist.get_rank(group)
        self.org, self.added = ORIGINAL // self.world, ADDED // self.world
        original, added = head.weight.detach().split([ORIGINAL, ADDED])
        self.weight = nn.Parameter(torch.cat([original.chunk(self.world)[rank], added.chunk(self.world)[rank]]).clone())

    def reorder(self, parts):
        org = [part[..., : self.org] for part in parts]
        added = [part[..., self.org :] for part in parts]
        return torch.cat(org + added, dim=-1)

    def gather(self, logits):
        parts = [torch.empty_like(logits) for _ in range(self.world)]
        dist.all_gather(parts, logits, group=self.group)
        return torch.cat(parts, dim=-1)  # fixed: return self.reorder(parts)

    def forward(self, hidden, temperature):
        logits = self.gather(F.linear(hidden, self.weight))
        return (logits / temperature[:, None]).softmax(-1)


@gg.check(mesh={"tp": 2})
def check(mesh):
    head = Head()
    return gg.Refinement(
        head,
        VocabParallelHead(head, mesh.get_group("tp")),
        (gg.tensor(TOKENS, HIDDEN), gg.tensor(TOKENS)),
        out_relations="replicate",
        grads=False,
    )
