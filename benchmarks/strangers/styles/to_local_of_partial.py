"""A feed-forward block with DTensor weights, which goes back to plain tensors for the residual.

The mistake: 'out.to_local()' of a Partial DTensor is a partial sum over 'tp', and is added to the residual as if it were whole.

Rule: missing-reduction
"""
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import graphguard as gg

DIM, FFN = 6, 10


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.w1 = nn.Parameter(torch.empty(FFN, DIM))
        self.w2 = nn.Parameter(torch.empty(DIM, FFN))
        self.w3 = nn.Parameter(torch.empty(FFN, DIM))

    def forward(self, x):
        h = self.norm(x)
        return x + F.linear(F.silu(F.linear(h, self.w1)) * F.linear(h, self.w3), self.w2)


class TPFeedForward(nn.Module):
    def __init__(self, ffn, mesh):
        super().__init__()
        self.mesh = mesh
        self.norm = nn.LayerNorm(DIM)
        self.norm.load_state_dict(ffn.norm.state_dict())
        self.w1 = nn.Parameter(distribute_tensor(ffn.w1.detach().clone(), mesh, [Shard(0)]))
        self.w2 = nn.Parameter(distribute_tensor(ffn.w2.detach().clone(), mesh, [Shard(1)]))
        self.w3 = nn.Parameter(distribute_tensor(ffn.w3.detach().clone(), mesh, [Shard(0)]))

    def forward(self, x):
        h = DTensor.from_local(self.norm(x), self.mesh, [Replicate()], run_check=False)
        out = F.linear(F.silu(F.linear(h, self.w1)) * F.linear(h, self.w3), self.w2)  # fault
        out = out.to_local()  # fixed: out = out.full_tensor()
        return x + out


@gg.check(mesh={"tp": 2})
def check(mesh):
    ffn = FeedForward()
    return gg.Refinement(
        ffn, TPFeedForward(ffn, mesh["tp"]), (gg.tensor(3, 5, DIM),), out_relations="replicate", grads=False
    )
