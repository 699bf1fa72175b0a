"""DeepSpeed's layers as they are: tensor-parallel linears and Ulysses attention."""

import os

os.environ.setdefault("DS_ACCELERATOR", "cuda")  # what a job on GPUs finds; on a CPU DeepSpeed builds an extension

import deepspeed
import torch
from deepspeed.module_inject.layers import LinearAllreduce, LinearLayer, set_autotp_mode
from deepspeed.sequence.layer import DistributedAttention
from torch import nn
from torch.distributed.tensor import Shard
from torch.nn import functional as F

import graphguard as gg

BATCH, TOKENS, HEADS, DIM, HIDDEN = 2, 8, 4, 4, 24
WIDTH = HEADS * DIM


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, HIDDEN)
        self.down = nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(x)))


class Core(nn.Module):
    """Attention to all tokens of some heads: (batch, tokens, heads, dim)."""

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        query, key, value = (x.transpose(1, 2) for x in (query, key, value))
        return F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).contiguous()


class Attention(nn.Module):
    def __init__(self, group=None) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        core = Core()
        self.core = core if group is None else DistributedAttention(core, group, scatter_idx=2, gather_idx=1)
        self.batch_dim = () if group is None else (0,)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = x.shape
        heads = (y.reshape(batch, tokens, HEADS, DIM) for y in self.qkv(x).chunk(3, -1))
        return self.out(self.core(*heads, *self.batch_dim).reshape(batch, tokens, WIDTH))


def loss(model: nn.Module, group=None):
    """Loss and gradients; over ``group`` both are the mean of the ranks'."""

    def run(x: torch.Tensor, target: torch.Tensor):
        value = F.mse_loss(model(x), target)
        value.backward()
        found = {"loss": value.detach(), **{name: p.grad for name, p in model.named_parameters()}}
        if group is not None:
            for tensor in found.values():
                torch.distributed.all_reduce(tensor, group=group)
                tensor /= group.size()
        return found

    return run


@gg.check(mesh=[{"tp": 2}, {"tp": 4}])
def tensor_parallel(mesh):
    deepspeed.init_distributed()
    set_autotp_mode(training=True)
    model = MLP()
    model.up = LinearLayer(model.up, mesh.get_group("tp"), name="up")
    model.down = LinearAllreduce(model.down, mesh.get_group("tp"), name="down")
    return gg.Refinement(MLP(), model, (gg.tensor(3, WIDTH),), out_relations="replicate")


SEQUENCE = (gg.tensor(BATCH, TOKENS, WIDTH), gg.tensor(BATCH, TOKENS, WIDTH))


@gg.check(mesh=[{"sp": 2}, {"sp": 4}])
def ulysses(mesh):
    deepspeed.init_distributed()
    group = mesh.get_group("sp")
    shards = tuple({"sp": Shard(1)} for _ in SEQUENCE)
    return gg.Refinement(loss(Attention()), loss(Attention(group), group), SEQUENCE, in_relations=shards)
