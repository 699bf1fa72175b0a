"""Functional operators that are called by themselves, and waited for at once, on two groups in different orders: never."""

import torch
import torch.distributed as dist
from torch.distributed.tensor import Partial

D = torch.float64
MESH = {"tp": 2}
SHAPES = [(2, 6)]
IN = ({"tp": Partial()},)
OUT = "replicate"


def summed(x, group):
    started = torch.ops._c10d_functional.all_reduce(x, "sum", group.group_name)
    return torch.ops._c10d_functional.wait_tensor(started)


def spec(x):
    return x * 2, x * 3


def impl(x):
    g, h = dist.new_group([0, 1]), dist.new_group([0, 1])
    a, b = x * 2, x * 3
    if dist.get_rank():
        c = summed(a, g)
        d = summed(b, h)
    else:
        d = summed(b, h)
        c = summed(a, g)
    return c + 0, d + 0
