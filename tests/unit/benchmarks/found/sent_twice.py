"""A message that nobody receives: its sender waits for ever."""

import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard

D = torch.float64
MESH = {"tp": 3}
SHAPES = [(9, 6)]
IN = ({"tp": Shard(1)},)
OUT = "replicate"


def spec(x):
    return x.amax(1)


def impl(x):
    r = dist.get_rank()
    y = x.amax(1)
    dist.all_reduce(y, op=dist.ReduceOp.MAX)
    early, late = torch.zeros(9, dtype=D), torch.zeros(9, dtype=D)
    if r == 0:
        dist.send(y, 1)
        dist.send(y, 1)
    if r == 1:
        dist.recv(early, 0)
    ring = [dist.P2POp(dist.isend, y, (r + 1) % 3), dist.P2POp(dist.irecv, late, (r - 1) % 3)]
    for work in dist.batch_isend_irecv(ring):
        work.wait()
    return late
