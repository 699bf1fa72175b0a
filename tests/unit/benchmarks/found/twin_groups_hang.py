"""The ranks wait on two groups of the same ranks, for a call that nobody waited for: never."""

import torch
import torch.distributed as dist
from torch.distributed.tensor import Partial

D = torch.float64
MESH = {"tp": 2}
SHAPES = [(2, 6)]
IN = ({"tp": Partial()},)
OUT = {"tp": Partial()}


def spec(x):
    return x * 3


def impl(x):
    g, h = dist.new_group([0, 1]), dist.new_group([0, 1])
    if dist.get_rank() == 1:
        g = h
    y = x * 3
    dist.all_reduce(x, group=g, async_op=True)
    dist.broadcast(x, src=1, group=g)
    return y
