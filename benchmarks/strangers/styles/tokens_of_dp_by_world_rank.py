"""Experts over all ranks, attention by dp: tokens are gathered over dp, experts are split over all ranks, own tokens are taken back.

The mistake: a rank takes the part of its number within tp out of the gathered tokens: its number within dp is needed.

Rule: wrong-shard
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

HIDDEN, FFN, EXPERTS, TOKENS = 4, 3, 6, 9


class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.w13 = nn.Parameter(torch.empty(EXPERTS, FFN, HIDDEN))
        self.w2 = nn.Parameter(torch.empty(EXPERTS, HIDDEN, FFN))

    def forward(self, x):
        scores = self.gate(x).softmax(-1)
        h = F.silu(torch.einsum("th,efh->tef", x, self.w13))
        return torch.einsum("tef,ehf,te->th", h, self.w2, scores)


class FusedMoE(nn.Module):
    def __init__(self, moe, mesh):
        super().__init__()
        self.dp_group, self.dp_size = mesh.get_group("dp"), mesh["dp"].size()
        self.dp_rank, self.tp_rank = mesh.get_local_rank("dp"), mesh.get_local_rank("tp")
        ep_rank, ep_size = dist.get_rank(), dist.get_world_size()
        self.local = slice(ep_rank * EXPERTS // ep_size, (ep_rank + 1) * EXPERTS // ep_size)
        self.gate = nn.Parameter(moe.gate.weight.detach().clone())
        self.w13 = nn.Parameter(moe.w13.detach()[self.local].clone())
        self.w2 = nn.Parameter(moe.w2.detach()[self.local].clone())

    def gather_tokens(self, x):
        out = torch.empty(self.dp_size * x.shape[0], x.shape[1])
        dist.all_gather_into_tensor(out, x.contiguous(), group=self.dp_group)
        return out

    def own_tokens(self, x):
        size = x.shape[0] // self.dp_size
        return x.narrow(0, self.tp_rank * size, size)  # fixed: return x.narrow(0, self.dp_rank * size, size)

    def forward(self, x):
        tokens = self.gather_tokens(x)
        scores = F.linear(tokens, self.gate).softmax(-1)[:, self.local]
        h = F.silu(torch.einsum("th,efh->tef", tokens, self.w13))
        y = torch.einsum("tef,ehf,te->th", h, self.w2, scores)
        dist.all_reduce(y)
        return self.own_tokens(y)


@gg.check(mesh={"dp": 3, "tp": 2})
def check(mesh):
    moe = MoE()
    return gg.Refinement(
        moe,
        FusedMoE(moe, mesh),
        (gg.tensor(TOKENS, HIDDEN),),
        in_relations={"dp": Shard(0), "tp": Replicate()},
        out_relations={"dp": Shard(0), "tp": Replicate()},
        grads=False,
    )
