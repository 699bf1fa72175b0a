"""A loader that cuts a fused weight. The loader cuts qkv as one block: chunk of the fused weight instead of each of q, k, v.

Rule: wrong-shard
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

SEQ, DIM, HEADS, HEAD = 5, 7, 6, 2


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class Attention(nn.Module):
    def __init__(self, heads, group=None):
        super().__init__()
        self.heads, self.group = heads, group
        self.qkv = nn.Linear(DIM, 3 * heads * HEAD, bias=False)
        self.out = nn.Linear(heads * HEAD, DIM, bias=False)

    def forward(self, x):
        q, k, v = (t.view(SEQ, self.heads, HEAD).transpose(0, 1) for t in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = self.out(y.transpose(0, 1).reshape(SEQ, -1))
        return y if self.group is None else Reduce.apply(y, self.group)


def load(state, impl, mesh):
    rank, size = mesh.get_local_rank("tp"), mesh["tp"].size()
    with torch.no_grad():
        qkv = state["qkv.weight"]
        impl.qkv.weight.copy_(qkv.chunk(size)[rank])  # fixed: impl.qkv.weight.copy_(torch.cat([part.chunk(size)[rank] for part in qkv.chunk(3)]))
        impl.out.weight.copy_(state["out.weight"].chunk(size, 1)[rank])


@gg.check(mesh={"tp": 2})
def check(mesh):
    group = mesh.get_group("tp")
    return gg.Refinement(
        Attention(HEADS), Attention(HEADS // 2, group), (gg.tensor(SEQ, DIM),),
        load=load, out_relations="replicate", grads=False,
    )
