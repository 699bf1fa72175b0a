"""Fully sharded LoRA of a merged gate and up projection: A is split along its rank, and its results are gathered.

The mistake: after the gather the last dim is [gate of rank 0 | up of rank 0 | gate of rank 1 | ...]: its halves are not gate and up.

Rule: wrong-shard, wrong-relation
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F

import graphguard as gg

HIDDEN, FFN, RANK, ALPHA = 5, 6, 4, 2.0


def mlp(x, gate_up, down, gate_a, up_a, gate_b, up_b):
    gate, up = (x @ gate_up.t()).chunk(2, dim=-1)
    gate = gate + ALPHA * (x @ gate_a.t()) @ gate_b.t()
    up = up + ALPHA * (x @ up_a.t()) @ up_b.t()
    return (F.silu(gate) * up) @ down.t()


def tensor_model_parallel_all_gather(x, group, dim=-1):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, x.contiguous(), group=group)
    return torch.cat(parts, dim=dim)


class MergedColumnParallelLinearWithShardedLoRA:
    n_slices = 2

    def __init__(self, group):
        self.group = group
        self.tp_rank, self.tp_size = dist.get_rank(group), dist.get_world_size(group)

    def part(self, t, dim=0):
        return t.chunk(self.tp_size, dim)[self.tp_rank]

    def load(self, gate_up, lora_a, lora_b):
        self.weight = torch.cat([self.part(w) for w in gate_up.chunk(2)])
        self.lora_a = [self.part(a) for a in lora_a]
        self.lora_b = [self.part(b) for b in lora_b]

    def shrink(self, x):
        buffer = torch.cat([x @ a.t() for a in self.lora_a], dim=-1)  # fixed: buffer = torch.stack([x @ a.t() for a in self.lora_a])
        buffer = tensor_model_parallel_all_gather(buffer, self.group)  # fault
        return buffer.chunk(self.n_slices, dim=-1)  # fixed: return buffer.unbind(0)

    def expand(self, shrunk):
        return torch.cat([s @ b.t() for s, b in zip(shrunk, self.lora_b, strict=True)], dim=-1)

    def forward(self, x):
        return x @ self.weight.t() + ALPHA * self.expand(self.shrink(x))


@gg.check(mesh={"tp": 2})
def check(mesh):
    group = mesh.get_group("tp")

    def impl(x, gate_up, down, gate_a, up_a, gate_b, up_b):
        layer = MergedColumnParallelLinearWithShardedLoRA(group)
        layer.load(gate_up, (gate_a, up_a), (gate_b, up_b))
        gate, up = layer.forward(x).chunk(2, dim=-1)
        y = (F.silu(gate) * up) @ layer.part(down, 1).t()
        dist.all_reduce(y, group=group)
        return y

    a, b = gg.tensor(RANK, HIDDEN), gg.tensor(FFN, RANK)
    return gg.Refinement(
        mlp,
        impl,
        (gg.tensor(3, HIDDEN), gg.tensor(2 * FFN, HIDDEN), gg.tensor(HIDDEN, FFN), a, a, b, b),
        out_relations="replicate",
        grads=False,
    )
