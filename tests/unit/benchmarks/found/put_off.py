"""Functional collectives on two groups in different orders: right, as their results wait when they are read."""

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as funcol
from torch.distributed.tensor import Partial

D = torch.float64
MESH = {"tp": 2}
SHAPES = [(2, 6)]
IN = ({"tp": Partial()},)
OUT = "replicate"


def spec(x):
    return x * 2, x * 3


def impl(x):
    g, h = dist.new_group([0, 1]), dist.new_group([0, 1])
    a, b = x * 2, x * 3
    if dist.get_rank():
        c = funcol.all_reduce(a, "sum", g)
        d = funcol.all_reduce(b, "sum", h)
    else:
        d = funcol.all_reduce(b, "sum", h)
        c = funcol.all_reduce(a, "sum", g)
    return c + 0, d + 0
