"""An embedding model with last-token pooling; the sequence is split over sp.

The mistake: 'pooled' is broadcast from rank 0, whose last token is not the sequence's: that stands on the last rank.

Rule: wrong-shard, wrong-relation
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

HIDDEN, EMBED = 6, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(HIDDEN)
        self.fc = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x):
        return x + F.gelu(self.fc(self.norm(x)))


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.proj = nn.Linear(HIDDEN, EMBED, bias=False)

    def backbone(self, x):
        for block in self.blocks:
            x = block(x)
        return x

    def pool(self, x):
        return x[:, -1]

    def forward(self, x):
        pooled = self.proj(self.pool(self.backbone(x)))
        return pooled / pooled.square().sum(-1, keepdim=True).sqrt()


class SequenceParallelEmbedder(Embedder):
    def __init__(self, group):
        super().__init__()
        self.group = group
        self.world = dist.get_world_size(group)

    def pool(self, x):
        last = x[:, -1].contiguous()
        dist.broadcast(last, group=self.group, group_src=0)  # fixed: dist.broadcast(last, group=self.group, group_src=self.world - 1)
        return last


@gg.check(mesh={"sp": 3})
def check(mesh):
    return gg.Refinement(
        Embedder(),
        SequenceParallelEmbedder(mesh.get_group("sp")),
        (gg.tensor(2, 12, HIDDEN),),
        in_relations={"sp": Shard(1)},
        out_relations="replicate",
        grads=False,
    )
