"""A row-parallel layer with a LoRA whose rank is split over tp.

The mistake: the update is scaled by alpha / lora_a.shape[0], the rank of the shard (2), where alpha / 4 is needed: tp = 2 times too large.

Rule: wrong-scale
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

IN, OUT, RANK, ALPHA = 6, 5, 4, 8.0


class LoRALinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(IN, OUT, bias=False)
        self.lora_a = nn.Parameter(torch.empty(RANK, IN))
        self.lora_b = nn.Parameter(torch.empty(OUT, RANK))

    def forward(self, x):
        return self.base(x) + ALPHA / RANK * F.linear(F.linear(x, self.lora_a), self.lora_b)


class LoRAConfig:
    def __init__(self, rank, alpha):
        self.rank, self.alpha = rank, alpha


class ShardedLoRALinear(nn.Module):
    def __init__(self, layer, config, group):
        super().__init__()
        self.group = group
        world, rank = dist.get_world_size(group), dist.get_rank(group)
        self.base = nn.Parameter(layer.base.weight.detach().chunk(world, dim=1)[rank].clone())
        self.lora_a = nn.Parameter(layer.lora_a.detach().chunk(world)[rank].clone())
        self.lora_b = nn.Parameter(layer.lora_b.detach().chunk(world, dim=1)[rank].clone())
        self.first, self.width = rank * self.base.shape[1], self.base.shape[1]
        self.scaling = config.alpha / self.lora_a.shape[0]  # fixed: self.scaling = config.alpha / config.rank

    def forward(self, x):
        own = x.narrow(-1, self.first, self.width)
        y = F.linear(own, self.base)
        y = y + self.scaling * F.linear(F.linear(x, self.lora_a), self.lora_b)  # fault
        dist.all_reduce(y, group=self.group)
        return y


@gg.check(mesh={"tp": 2})
def check(mesh):
    layer = LoRALinear()
    return gg.Refinement(
        layer,
        ShardedLoRALinear(layer, LoRAConfig(RANK, ALPHA), mesh.get_group("tp")),
        (gg.tensor(3, IN),),
        out_relations="replicate",
        grads=False,
    )
