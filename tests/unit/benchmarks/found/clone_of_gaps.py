"""Columns of a part that lies by columns: reduce_scatter clones what is not dense, and clones keep the order of dims."""

import torch
import torch.distributed as dist
from torch.distributed.tensor import Partial, Shard

D = torch.float64
MESH = {"tp": 2}
SHAPES = [(4, 4)]
IN = ({"tp": Partial()},)
OUT = {"tp": Shard(0)}


def spec(x):
    return x.t().clone()


def impl(x):
    t = x.t().clone()
    own = torch.empty(2, 4, dtype=D)
    dist.reduce_scatter(own, list(t.chunk(2)))
    return own
