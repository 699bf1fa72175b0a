"""Sequence parallel row-parallel output, batch first. Reduce-scatter over dim 0 (batch) instead of the sequence (dim 1): x.chunk over batch flattened.

Rule: wrong-shard, wrong-relation
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

BATCH, SEQ, DIM, HIDDEN = 2, 6, 5, 12


def spec(x, w1, w2):
    return F.gelu(x @ w1) @ w2


def reduce_scatter_sequence(y):
    world = dist.get_world_size()
    batch, seq, dim = y.shape
    flat = y.contiguous()  # fixed: flat = y.transpose(0, 1).contiguous()
    out = torch.empty(seq // world, batch, dim)
    dist.reduce_scatter_tensor(out, flat)
    return out.transpose(0, 1)  # fault


def impl(x, w1, w2):
    h = F.gelu(x @ w1)
    return reduce_scatter_sequence(h @ w2)


@gg.check(mesh={"tp": 3})
def check(mesh):
    return gg.Refinement(
        spec, impl,
        inputs=(gg.tensor(BATCH, SEQ, DIM), gg.tensor(DIM, HIDDEN), gg.tensor(HIDDEN, DIM)),
        in_relations=({"tp": Replicate()}, {"tp": Shard(1)}, {"tp": Shard(0)}),
        out_relations={"tp": Shard(1)},
        grads=False,
    )
