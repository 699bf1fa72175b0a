"""Sequence parallel embedding: learned positions. Positions 0..local on each rank.

Rule: wrong-shard
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

BATCH, SEQ, VOCAB, DIM = 2, 12, 7, 5


class Embedding(nn.Module):
    def __init__(self, group=None):
        super().__init__()
        self.group = group
        self.tokens = nn.Embedding(VOCAB, DIM)
        self.positions = nn.Embedding(SEQ, DIM)
        self.norm = nn.LayerNorm(DIM)

    def forward(self, ids):
        length = ids.shape[1]
        pos = torch.arange(length)  # fault
        # fixed, insert: if self.group is not None:
        # fixed, insert:     pos = pos + dist.get_rank(self.group) * length
        h = self.tokens(ids) + self.positions(pos)  # fault
        return self.norm(h)


@gg.check(mesh={"sp": 3})
def check(mesh):
    return gg.Refinement(
        Embedding(), Embedding(mesh.get_group("sp")), (gg.tensor(BATCH, SEQ, dtype=torch.int64, high=VOCAB),),
        in_relations={"sp": Shard(1)}, out_relations={"sp": Shard(1)}, grads=False,
    )
