"""The layers of an MLP are made without the tensor-parallel size, so that each rank has them whole, and the next norm reduces their result: tokenspeed's Qwen3.

Source: https://github.com/lightseekorg/tokenspeed/pull/80
Rule: extra-reduction, wrong-scale
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

TOKENS, HIDDEN, INNER = 3, 6, 8


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x):
        return self.weight * x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()

    def forward_with_allreduce_fusion(self, x, residual, group):
        """The sum over the ranks and the residual, and its norm."""
        x = x.clone()
        dist.all_reduce(x, group=group)  # near
        residual = residual + x
        return self(residual), residual


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up_proj = nn.Linear(HIDDEN, INNER, bias=False)
        self.down_proj = nn.Linear(INNER, HIDDEN, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.up_proj(x)))


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = MLP()
        self.norm = RMSNorm()

    def forward(self, x):
        residual = x + self.mlp(x)
        return self.norm(residual), residual


class ParallelLinear(nn.Module):
    """One part of a linear layer, cut along a dim of its weight."""

    def __init__(self, in_features, out_features, dim, tp_rank=0, tp_size=1):
        super().__init__()
        self.dim, self.tp_rank, self.tp_size = dim, tp_rank, tp_size
        shape = [out_features, in_features]
        shape[dim] //= tp_size
        self.weight = nn.Parameter(torch.empty(shape))

    def weight_loader(self, loaded_weight):
        size = self.weight.shape[self.dim]
        self.weight.data.copy_(loaded_weight.narrow(self.dim, self.tp_rank * size, size))

    def forward(self, x):
        return F.linear(x, self.weight)


class Qwen3MLP(nn.Module):
    def __init__(self, tp_rank, tp_size):
        super().__init__()
        self.up_proj = ParallelLinear(HIDDEN, INNER, 0)  # fixed: self.up_proj = ParallelLinear(HIDDEN, INNER, 0, tp_rank, tp_size)
        self.down_proj = ParallelLinear(INNER, HIDDEN, 1)  # fixed: self.down_proj = ParallelLinear(INNER, HIDDEN, 1, tp_rank, tp_size)

    def forward(self, x):
        return self.down_proj(F.silu(self.up_proj(x)))


class ParallelLayers(nn.Module):
    def __init__(self, group):
        super().__init__()
        self.group = group
        self.mlp = Qwen3MLP(dist.get_rank(group), dist.get_world_size(group))
        self.norm = RMSNorm()

    def forward(self, x):
        return self.norm.forward_with_allreduce_fusion(self.mlp(x), x, self.group)


def load(state, impl, mesh):
    impl.mlp.up_proj.weight_loader(state["mlp.up_proj.weight"])
    impl.mlp.down_proj.weight_loader(state["mlp.down_proj.weight"])
    with torch.no_grad():
        impl.norm.weight.copy_(state["norm.weight"])


@gg.check(mesh={"tp": 2})
def check(mesh):
    impl = ParallelLayers(mesh.get_group("tp"))
    return gg.Refinement(Layers(), impl, (gg.tensor(TOKENS, HIDDEN),), load=load, out_relations="replicate", grads=False)
