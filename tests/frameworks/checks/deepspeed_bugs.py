"""Natural mistakes with DeepSpeed's layers."""

import os

os.environ.setdefault("DS_ACCELERATOR", "cuda")

import deepspeed
import torch.distributed as dist
from deepspeed.module_inject.layers import LinearLayer, set_autotp_mode
from deepspeed_layers import DIM, HEADS, HIDDEN, MLP, SEQUENCE, WIDTH, Attention, loss
from deepspeed_moe import Layer, pair
from torch import nn
from torch.distributed.tensor import Shard
from torch.nn import functional as F

import graphguard as gg


class ForgetsToReduce(MLP):
    def __init__(self, group) -> None:
        super().__init__()
        self.up = LinearLayer(self.up, group, name="up")
        self.down = nn.Linear(HIDDEN // group.size(), WIDTH, bias=False)

    def forward(self, x):
        product = self.down(F.gelu(self.up(x)))  # the mistake
        return x + product


class Whole(MLP):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)


@gg.check(mesh={"tp": 2})
def plain_layer_after_a_sharded_one(mesh):
    deepspeed.init_distributed()
    set_autotp_mode(training=True)
    model = ForgetsToReduce(mesh.get_group("tp")).cuda()
    return gg.Refinement(Whole(), model, (gg.tensor(3, WIDTH),), out_relations="replicate")


class TokensFirst(Attention):
    def forward(self, x):
        batch, tokens, _ = x.shape
        heads = (y.reshape(batch, tokens, HEADS, DIM) for y in self.qkv(x).chunk(3, -1))
        mixed = self.core(*heads, 1)  # the mistake
        return self.out(mixed.reshape(batch, tokens, WIDTH))


@gg.check(mesh={"sp": 2})
def batch_taken_for_tokens(mesh):
    """Told that tokens come first, DeepSpeed gathers the batch: every rank attends to its own tokens only."""
    deepspeed.init_distributed()
    group = mesh.get_group("sp")
    shards = tuple({"sp": Shard(1)} for _ in SEQUENCE)
    return gg.Refinement(loss(Attention()), loss(TokensFirst(group), group), SEQUENCE, in_relations=shards)


class SharesTheBalance(Layer):
    def forward(self, x):
        tokens = self.moe(x, None)
        return tokens + 0.01 * self.moe.l_aux / dist.get_world_size()  # the mistake


@gg.check(mesh={"ep": 2})
def balancing_loss_divided_among_the_ranks(mesh):
    """Every rank balances its own tokens, as the specification does for each part of them."""
    return pair(mesh, 2, SharesTheBalance)
