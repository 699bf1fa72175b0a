"""An all-reduce that nobody waits for, and a functional one of the same group that is read: right as far as one group's collectives run in their order, which the report lists as assumed."""

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as funcol
from torch.distributed.tensor import Shard

D = torch.float64
MESH = {"tp": 2}
SHAPES = [(2, 6)]
IN = ({"tp": Shard(0)},)
OUT = "replicate"


def spec(x):
    return x.amax(0, keepdim=True), x.sum(0, keepdim=True)


def impl(x):
    total, largest = x.sum(0, keepdim=True), x.amax(0, keepdim=True)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX, async_op=True)
    return largest, funcol.all_reduce(total, "sum", dist.group.WORLD)
