"""A reward model: masked mean pooling over the sequence, then a head. The sequence is split.

The mistake: 'count' is each rank's own number of tokens: a partial sum over 'sp' that is divided by as if it were whole.

Rule: missing-reduction, wrong-scale
"""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

HIDDEN, LABELS = 6, 3


def reduce_sum(x, group):
    if group is not None:
        dist.all_reduce(x, group=group)
    return x


class MeanPooling(nn.Module):
    def __init__(self, group=None):
        super().__init__()
        self.group = group

    def forward(self, hidden, mask):
        expanded = mask.unsqueeze(-1)
        summed = reduce_sum((hidden * expanded).sum(dim=1), self.group)
        count = expanded.sum(dim=1)  # fixed: count = reduce_sum(expanded.sum(dim=1), self.group)
        return summed / count  # fault


class RewardModel(nn.Module):
    def __init__(self, group=None):
        super().__init__()
        self.norm = nn.LayerNorm(HIDDEN)
        self.mlp = nn.Sequential(nn.Linear(HIDDEN, 2 * HIDDEN), nn.GELU(), nn.Linear(2 * HIDDEN, HIDDEN))
        self.pool = MeanPooling(group)
        self.score = nn.Linear(HIDDEN, LABELS)

    def forward(self, hidden, mask):
        hidden = hidden + self.mlp(self.norm(hidden))
        return self.score(self.pool(hidden, mask))


@gg.check(mesh={"sp": 2})
def check(mesh):
    return gg.Refinement(
        RewardModel(),
        RewardModel(mesh.get_group("sp")),
        (gg.tensor(3, 8, HIDDEN), gg.tensor(3, 8)),
        in_relations={"sp": Shard(1)},
        out_relations="replicate",
        grads=False,
    )
