"""Embedding and cross entropy with the vocabulary split over ranks."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import Shard

import graphguard as gg

TOKENS, VOCABULARY, DIM = 5, 8, 3


def language_model(tokens, table, head, target):
    """The specification: embedding, head and mean cross entropy."""
    x = F.embedding(tokens, table)
    return F.cross_entropy(x @ head.T, target)


@gg.check(mesh={"tp": 2})
def vocabulary_parallel(mesh):
    group, rank = mesh.get_group("tp"), mesh.get_local_rank("tp")

    def embedded(tokens, table):
        size = table.shape[0]
        start = rank * size
        outside = (tokens < start) | (tokens >= start + size)
        local = (tokens - start).masked_fill(outside, 0)
        x = F.embedding(local, table)
        x = x.masked_fill(outside[:, None], 0.0)
        dist.all_reduce(x, group=group)
        return x

    def cross_entropy(logits, target):
        size = logits.shape[-1]
        start = rank * size
        largest = logits.max(-1).values
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
        logits = logits - largest[:, None]
        total = logits.exp().sum(-1)
        dist.all_reduce(total, group=group)
        outside = (target < start) | (target >= start + size)
        local = (target - start).masked_fill(outside, 0)
        chosen = logits.gather(1, local[:, None]).squeeze(1)
        chosen = chosen.masked_fill(outside, 0.0)
        dist.all_reduce(chosen, group=group)
        return (total.log() - chosen).mean()

    def impl(tokens, table, head, target):
        x = embedded(tokens, table)
        logits = x @ head.T
        return cross_entropy(logits, target)

    index = gg.tensor(TOKENS, dtype=torch.int64, low=0, high=VOCABULARY)
    rows = gg.tensor(VOCABULARY, DIM)
    shard = {"tp": Shard(0)}
    return gg.Refinement(
        language_model,
        impl,
        (index, rows, rows, index),
        in_relations=({}, shard, shard, {}),
        out_relations="replicate",
        grads=False,
    )
