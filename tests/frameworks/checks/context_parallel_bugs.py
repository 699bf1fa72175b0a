"""Natural mistakes with `context_parallel`: what belongs to the sequence and is not among its buffers."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor.experimental import context_parallel

import graphguard as gg

HEADS, DIM, TOKENS = 2, 8, 8


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.randn(TOKENS, DIM))
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.out = nn.Linear(DIM, DIM)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = x.shape
        x = x + self.position[:tokens]
        q, k, v = (y.view(batch, tokens, HEADS, -1).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, tokens, DIM))


INPUTS = (gg.tensor(2, TOKENS, DIM), gg.tensor(2, TOKENS, DIM))


def loss(model: nn.Module):
    def run(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(model(x), target)

    return run


@gg.check(mesh={"cp": 2})
def positions_start_at_every_rank(mesh):
    def parallel(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        x, target = x.clone(), target.clone()
        with context_parallel(mesh["cp"], buffers=[x, target], buffer_seq_dims=[1, 1]):  # not the positions
            return mean(F.mse_loss(model(x), target), mesh)  # the mistake

    model = Attention()
    return gg.Refinement(loss(Attention()), parallel, INPUTS, out_relations="replicate")


@gg.check(mesh={"cp": 2})
def targets_in_rank_order(mesh):
    def parallel(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        target = target.chunk(mesh.size(), dim=1)[mesh.get_local_rank()]  # x is dealt out from both ends: the mistake
        with context_parallel(mesh["cp"], buffers=[x], buffer_seq_dims=[1]):
            return mean(F.mse_loss(model(x), target), mesh)

    model = Plain()
    return gg.Refinement(loss(Plain()), parallel, INPUTS, out_relations="replicate")


class Plain(Attention):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.attend(x))

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = x.shape
        q, k, v = (y.view(batch, tokens, HEADS, -1).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, tokens, DIM)


def mean(value: torch.Tensor, mesh) -> torch.Tensor:
    torch.distributed.all_reduce(value, group=mesh.get_group("cp"))
    return value / mesh.size()
