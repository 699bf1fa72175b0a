"""Causal attention with the sequence split over ranks: keys and values go round, the softmax is put together as they come."""

import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard

import graphguard as gg

TOKENS, DIM = 6, 4


def attention(q, k, v):
    mask = torch.ones(q.shape[0], k.shape[0], dtype=torch.bool).triu(1)
    scores = (q @ k.T * DIM**-0.5).masked_fill(mask, float("-inf"))
    return scores.softmax(-1) @ v


def passed_on(x, rank, ranks, group):
    """What the rank before this one holds."""
    out = torch.empty_like(x)
    sends = dist.P2POp(dist.isend, x.contiguous(), (rank + 1) % ranks, group)
    receives = dist.P2POp(dist.irecv, out, (rank - 1) % ranks, group)
    for work in dist.batch_isend_irecv([sends, receives]):
        work.wait()
    return out


@gg.check(mesh={"cp": 2})
def ring(mesh):
    group, rank, ranks = mesh.get_group("cp"), mesh.get_local_rank("cp"), mesh["cp"].size()

    def impl(q, k, v):
        length = q.shape[0]
        rows = torch.arange(length) + rank * length
        total, norm = torch.zeros_like(q), torch.zeros(length, 1)
        for step in range(ranks):
            source = (rank - step) % ranks
            columns = torch.arange(length) + source * length
            hidden = columns[None, :] > rows[:, None]
            scores = (q @ k.T * DIM**-0.5).masked_fill(hidden, float("-inf"))
            weights = scores.exp()
            total = total + weights @ v
            norm = norm + weights.sum(-1, keepdim=True)
            if step < ranks - 1:
                k = passed_on(k, rank, ranks, group)
                v = passed_on(v, rank, ranks, group)
        return total / norm

    sequence = {"cp": Shard(0)}
    inputs = tuple(gg.tensor(TOKENS, DIM) for _ in range(3))
    return gg.Refinement(attention, impl, inputs, in_relations=sequence, out_relations=sequence, grads=False)


def rotated(x, positions):
    """Rotary positions of (tokens, 4)."""
    angles = positions[:, None] * torch.tensor([1.0, 0.01])
    cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def rotary_attention(q, k, v):
    positions = torch.arange(q.shape[0], dtype=torch.float32)
    return attention(rotated(q, positions), rotated(k, positions), v)


@gg.check(mesh={"cp": 2})
def gathered_context(mesh):
    group, rank, ranks = mesh.get_group("cp"), mesh.get_local_rank("cp"), mesh["cp"].size()

    def gather(x):
        parts = [torch.empty_like(x) for _ in range(ranks)]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, dim=0)

    def impl(q, k, v):
        length = q.shape[0]
        positions = torch.arange(length, dtype=torch.float32) + rank * length
        q, k = rotated(q, positions), rotated(k, positions)
        k, v = gather(k), gather(v)
        mask = torch.ones(length, length * ranks, dtype=torch.bool).triu(1 + rank * length)
        scores = (q @ k.T * DIM**-0.5).masked_fill(mask, float("-inf"))
        return scores.softmax(-1) @ v

    sequence = {"cp": Shard(0)}
    inputs = tuple(gg.tensor(TOKENS, DIM) for _ in range(3))
    return gg.Refinement(rotary_attention, impl, inputs, in_relations=sequence, out_relations=sequence, grads=False)
