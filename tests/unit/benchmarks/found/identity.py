"""Where an object lies in memory decides what is computed."""

import torch
from torch.distributed.tensor import Shard

D = torch.float64
MESH = {"tp": 2}
SHAPES = [(6, 4)]
IN = ({"tp": Shard(1)},)
OUT = {"tp": Shard(1)}


def spec(x):
    return x * float(id(object()) % 4099 / 4099)


def impl(x):
    return x * float(id(object()) % 4099 / 4099)
