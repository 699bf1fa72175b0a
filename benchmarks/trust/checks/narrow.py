"""Correct programs in narrow types: bfloat16 products with float32 sums, indices in int32, masks in uint8, casts before and after collectives."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import Shard

import graphguard as gg

HALF = torch.bfloat16
VOCABULARY = 12


def summed(x):
    """The sum over all ranks."""
    x = x.clone()
    dist.all_reduce(x)
    return x


def gathered(x, ranks):
    """The shards of all ranks, one after another."""
    parts = [torch.empty_like(x) for _ in range(ranks)]
    dist.all_gather(parts, x.contiguous())
    return torch.cat(parts)


@gg.check(mesh={"tp": 2})
def mixed_precision(mesh):
    """Half-precision activations; what is added over ranks is float32, as the specification's product is."""
    rank = mesh.get_local_rank("tp")

    def spec(x, up, down):
        hidden = F.silu((x.to(HALF) @ up.to(HALF)).float())
        return (hidden @ down).to(HALF)

    def impl(x, up, down):
        hidden = F.silu((x.to(HALF) @ up.to(HALF).chunk(2, 1)[rank]).float())
        return summed(hidden @ down.chunk(2, 0)[rank]).to(HALF)

    inputs = (gg.tensor(3, 4), gg.tensor(4, 6), gg.tensor(6, 5))
    return gg.Refinement(spec, impl, inputs, out_relations="replicate")


@gg.check(mesh={"dp": 3})
def half_gather(mesh):
    """Rounded before the gather: the same numbers at half the bytes."""
    rank = mesh.get_local_rank("dp")

    def spec(x, weight):
        return F.softmax((x @ weight).to(HALF).float(), dim=-1)

    def impl(x, weight):
        return F.softmax(gathered((x.chunk(3)[rank] @ weight).to(HALF), 3).float(), dim=-1)

    return gg.Refinement(spec, impl, (gg.tensor(6, 4), gg.tensor(4, 5)), out_relations="replicate")


@gg.check(mesh={"tp": 2})
def short_indices(mesh):
    """A vocabulary over two ranks, looked up by int32, counted in uint8 masks."""
    low = 6 * mesh.get_local_rank("tp")

    def spec(ids, table):
        return F.embedding(ids, table), (ids >= 6).to(torch.uint8)

    def impl(ids, table):
        ids = ids.to(torch.int32)
        inside = (ids >= low) & (ids < low + 6)
        rows = F.embedding((ids - low).clamp(0, 5), table) * inside[:, None]
        return summed(rows), (ids > 5).to(torch.uint8)

    inputs = (gg.tensor(5, dtype=torch.int64, low=0, high=VOCABULARY), gg.tensor(VOCABULARY, 3))
    return gg.Refinement(spec, impl, inputs, in_relations=({}, {"tp": Shard(0)}), out_relations="replicate")


@gg.check(mesh={"tp": 2})
def quantised(mesh):
    """Weights in int8 with a scale for every column, columns over the ranks."""

    def spec(x, weight):
        scale = weight.abs().amax(0, keepdim=True) / 127
        whole = (weight / scale).round().clamp(-128, 127).to(torch.int8)
        return x @ (whole.float() * scale)

    columns = {"tp": Shard(1)}
    inputs = (gg.tensor(3, 4), gg.tensor(4, 6))
    return gg.Refinement(spec, spec, inputs, in_relations=({}, columns), out_relations=columns)
