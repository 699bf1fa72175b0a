"""DP attention: attention on the tokens of a dp rank (heads over tp), the MLP on the tokens of all, split over all ranks.

The mistake: the tokens are whole on both ranks of 'tp', and both write them into the buffer that is summed over all: they count tp = 2 times.

Rule: wrong-scale, extra-reduction
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

HIDDEN, FFN, TOKENS = 4, 8, 6


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.o_proj = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.norm = nn.LayerNorm(HIDDEN)
        self.up = nn.Linear(HIDDEN, FFN, bias=False)
        self.down = nn.Linear(FFN, HIDDEN, bias=False)

    def forward(self, x):
        h = x + self.o_proj(x)
        return h + self.down(F.silu(self.up(self.norm(h))))


class DPAttentionInfo:
    def __init__(self, mesh):
        self.dp_rank, self.dp_size = mesh.get_local_rank("dp"), mesh["dp"].size()
        self.attn_tp_rank, self.attn_tp_size = mesh.get_local_rank("tp"), mesh["tp"].size()
        self.attn_tp_group = mesh.get_group("tp")
        self.rank, self.size = dist.get_rank(), dist.get_world_size()


def _dp_gather(local, info, is_partial):
    buffer = torch.zeros(info.dp_size * local.shape[0], local.shape[1])
    if is_partial or info.attn_tp_rank == 0:
        buffer[info.dp_rank * local.shape[0] : (info.dp_rank + 1) * local.shape[0]] = local
    dist.all_reduce(buffer)  # fault
    return buffer


def dp_gather_partial(local, info):
    return _dp_gather(local, info, is_partial=True)


def dp_gather_replicate(local, info):
    return _dp_gather(local, info, is_partial=False)


def dp_scatter(whole, info):
    return whole.chunk(info.dp_size)[info.dp_rank]


class ParallelBlock(nn.Module):
    def __init__(self, block, info):
        super().__init__()
        self.info = info
        self.o_proj = nn.Parameter(block.o_proj.weight.detach().chunk(info.attn_tp_size, 1)[info.attn_tp_rank].clone())
        self.norm = nn.LayerNorm(HIDDEN)
        self.norm.load_state_dict(block.norm.state_dict())
        self.up = nn.Parameter(block.up.weight.detach().chunk(info.size)[info.rank].clone())
        self.down = nn.Parameter(block.down.weight.detach().chunk(info.size, 1)[info.rank].clone())

    def attention(self, x):
        first = self.info.attn_tp_rank * self.o_proj.shape[1]
        y = F.linear(x[:, first : first + self.o_proj.shape[1]], self.o_proj)
        dist.all_reduce(y, group=self.info.attn_tp_group)
        return x + y

    def forward(self, x):
        h = self.attention(x)
        tokens = dp_gather_partial(self.norm(h), self.info)  # fixed: tokens = dp_gather_replicate(self.norm(h), self.info)
        y = F.linear(F.silu(F.linear(tokens, self.up)), self.down)
        dist.all_reduce(y)
        return h + dp_scatter(y, self.info)


@gg.check(mesh={"dp": 2, "tp": 2})
def check(mesh):
    block = Block()
    return gg.Refinement(
        block,
        ParallelBlock(block, DPAttentionInfo(mesh)),
        (gg.tensor(TOKENS, HIDDEN),),
        in_relations={"dp": Shard(0), "tp": Replicate()},
        out_relations={"dp": Shard(0), "tp": Replicate()},
        grads=False,
    )
