"""RWKV channel mixing under context parallelism: a token sees the one before, over the borders of the chunks.

The mistake: the first token of rank 1 is shifted in from 'boundary[rank]', its own last token: the last token of rank 0 is needed.

Rule: wrong-shard
"""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

HIDDEN, FFN = 4, 10


def shift(x):
    return torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], dim=1)


def shift_over_ranks(x, group):
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    last = x[:, -1:].contiguous()
    boundary = [torch.empty_like(last) for _ in range(world)]
    dist.all_gather(boundary, last, group=group)
    before = boundary[rank] if rank > 0 else torch.zeros_like(last)  # fixed: before = boundary[rank - 1] if rank > 0 else torch.zeros_like(last)
    return torch.cat([before, x[:, :-1]], dim=1)


class ChannelMix(nn.Module):
    def __init__(self, group=None):
        super().__init__()
        self.group = group
        self.time_mix_k = nn.Parameter(torch.empty(HIDDEN))
        self.time_mix_r = nn.Parameter(torch.empty(HIDDEN))
        self.key = nn.Linear(HIDDEN, FFN, bias=False)
        self.receptance = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.value = nn.Linear(FFN, HIDDEN, bias=False)

    def token_shift(self, x):
        if self.group is None:
            return shift(x)
        return shift_over_ranks(x, self.group)

    def forward(self, x):
        previous = self.token_shift(x)
        xk = x * self.time_mix_k + previous * (1 - self.time_mix_k)
        xr = x * self.time_mix_r + previous * (1 - self.time_mix_r)
        k = torch.relu(self.key(xk)).square()
        return torch.sigmoid(self.receptance(xr)) * self.value(k)


class Block(nn.Module):
    def __init__(self, group=None):
        super().__init__()
        self.ln = nn.LayerNorm(HIDDEN)
        self.ffn = ChannelMix(group)

    def forward(self, x):
        return x + self.ffn(self.ln(x))


@gg.check(mesh={"cp": 3})
def check(mesh):
    return gg.Refinement(
        Block(),
        Block(mesh.get_group("cp")),
        (gg.tensor(2, 6, HIDDEN),),
        in_relations={"cp": Shard(1)},
        out_relations={"cp": Shard(1)},
        grads=False,
    )
