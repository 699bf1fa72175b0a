"""Correct programs on groups of two to four of the ranks: sums, means and maxima over one axis of several, exchanges inside of it, broadcasts to it."""

import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard

import graphguard as gg


def summed(x, group, op=dist.ReduceOp.SUM):
    """The reduction over a group."""
    x = x.clone()
    dist.all_reduce(x, op=op, group=group)
    return x


def normalised(x, weight):
    """Rows divided by their largest magnitude, times a matrix."""
    return (x / (1 + x.abs().amax(1, keepdim=True))) @ weight


@gg.check(mesh=[{"row": 2, "column": 3}, {"row": 3, "column": 2}])
def blocks(mesh):
    """Rows over one axis, columns over the other: maxima and products over the columns' group."""
    group = mesh.get_group("column")

    def impl(x, weight):
        largest = summed(x.abs().amax(1, keepdim=True), group, dist.ReduceOp.MAX)
        return summed((x / (1 + largest)) @ weight, group)

    block, rows = {"row": Shard(0), "column": Shard(1)}, {"column": Shard(0)}
    inputs = (gg.tensor(6, 6), gg.tensor(6, 4))
    return gg.Refinement(normalised, impl, inputs, in_relations=(block, rows), out_relations={"row": Shard(0)})


@gg.check(mesh={"outer": 2, "inner": 3})
def mean_of_means(mesh):
    """The mean over a group of three, then the mean over a group of two."""

    def impl(x):
        part = x.mean(0)
        dist.all_reduce(part, op=dist.ReduceOp.AVG, group=mesh.get_group("inner"))
        dist.all_reduce(part, group=mesh.get_group("outer"))
        return part / 2

    rows = {"outer": Shard(0), "inner": Shard(0)}
    return gg.Refinement(
        lambda x: x.mean(0), impl, (gg.tensor(12, 4),), in_relations=(rows,), out_relations="replicate"
    )


@gg.check(mesh={"data": 2, "heads": 3})
def exchange(mesh):
    """Rows for columns and back within groups of three."""
    group = mesh.get_group("heads")

    def swapped(parts):
        out = [torch.empty_like(part) for part in parts]
        dist.all_to_all(out, [part.contiguous() for part in parts], group=group)
        return out

    def impl(x):
        columns = torch.cat(swapped(x.chunk(3, 1)), 0)
        scaled = columns.cumsum(0)
        return torch.cat(swapped(scaled.chunk(3, 0)), 1)

    rows = {"data": Shard(1), "heads": Shard(0)}
    inputs = (gg.tensor(6, 12),)
    return gg.Refinement(lambda x: x.cumsum(0), impl, inputs, in_relations=(rows,), out_relations=(rows,))


@gg.check(mesh={"world": 4})
def three_of_four(mesh):
    """Three ranks add up; the last is told."""
    rank = mesh.get_local_rank("world")
    workers = dist.new_group([0, 1, 2])

    def impl(x):
        part = torch.zeros(4)
        if rank < 3:
            part = summed(x.chunk(3)[rank].exp().sum(0), workers)
        dist.broadcast(part, src=2)
        return part.log()

    return gg.Refinement(lambda x: x.logsumexp(0), impl, (gg.tensor(6, 4),), out_relations="replicate")
