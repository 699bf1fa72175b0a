"""Attention with the sequence split over ranks: all-to-all trades tokens for heads before it, and heads for tokens behind it."""

import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard

import graphguard as gg

TOKENS, HEADS, HEAD_DIM = 6, 4, 3
DIM = HEADS * HEAD_DIM


def attention(q, k, v):
    """(tokens, heads, head_dim) in and out."""
    q, k, v = (t.transpose(0, 1) for t in (q, k, v))
    mask = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).triu(1)
    scores = (q @ k.transpose(1, 2) * HEAD_DIM**-0.5).masked_fill(mask, float("-inf"))
    return (scores.softmax(-1) @ v).transpose(0, 1)


def layer(x, wq, wk, wv, wo):
    q, k, v = ((x @ w).view(-1, HEADS, HEAD_DIM) for w in (wq, wk, wv))
    return attention(q, k, v).reshape(-1, DIM) @ wo


def all_to_all(x, scatter, gather, group):
    """Give every rank a part along dim ``scatter``, and join what the ranks give along dim ``gather``."""
    ranks = dist.get_world_size(group)
    sent = [part.contiguous() for part in x.chunk(ranks, dim=scatter)]
    received = [torch.empty_like(part) for part in sent]
    dist.all_to_all(received, sent, group=group)
    return torch.cat(received, dim=gather)


@gg.check(mesh={"cp": 2})
def ulysses(mesh):
    group = mesh.get_group("cp")

    def impl(x, wq, wk, wv, wo):
        q, k, v = ((x @ w).view(-1, HEADS, HEAD_DIM) for w in (wq, wk, wv))
        q = all_to_all(q, scatter=1, gather=0, group=group)
        k = all_to_all(k, scatter=1, gather=0, group=group)
        v = all_to_all(v, scatter=1, gather=0, group=group)
        y = attention(q, k, v)
        y = all_to_all(y, scatter=0, gather=1, group=group)
        return y.reshape(-1, DIM) @ wo

    square = gg.tensor(DIM, DIM)
    return gg.Refinement(
        layer,
        impl,
        (gg.tensor(TOKENS, DIM), square, square, square, square),
        in_relations=({"cp": Shard(0)}, {}, {}, {}, {}),
        out_relations={"cp": Shard(0)},
        grads=False,
    )
