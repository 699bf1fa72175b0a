"""Decoding with keys and values split over ranks: partial softmaxes are merged. Partial outputs are merged without rescaling by exp(local max - global max).

Rule: missing-reduction, wrong-relation
"""
import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

QUERIES, KEYS, DIM = 2, 9, 5


def spec(q, k, v):
    scores = q @ k.t() / DIM**0.5
    return scores.softmax(-1) @ v


def impl(q, k, v):
    scores = q @ k.t() / DIM**0.5
    local_max = scores.max(-1, keepdim=True).values
    weights = torch.exp(scores - local_max)
    num = weights @ v
    den = weights.sum(-1, keepdim=True)
    # fixed, insert: global_max = local_max.clone()
    # fixed, insert: dist.all_reduce(global_max, op=dist.ReduceOp.MAX)
    # fixed, insert: scale = torch.exp(local_max - global_max)
    # fixed, insert: num, den = num * scale, den * scale
    dist.all_reduce(num)  # fault
    dist.all_reduce(den)  # fault
    return num / den


@gg.check(mesh={"cp": 3})
def check(mesh):
    return gg.Refinement(
        spec, impl,
        inputs=(gg.tensor(QUERIES, DIM), gg.tensor(KEYS, DIM), gg.tensor(KEYS, DIM)),
        in_relations=({"cp": Replicate()}, {"cp": Shard(0)}, {"cp": Shard(0)}),
        out_relations="replicate",
        grads=False,
    )
