"""Attention by data parallelism sums its output within each small group; the tokens are then gathered as if every rank had a part of them. SGLang's DeepSeek-V4.

Source: https://github.com/sgl-project/sglang/pull/31700
Rule: extra-reduction, wrong-scale
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

TOKENS, HIDDEN, HEADS, DIM, INNER, EPS = 6, 5, 2, 3, 8, 1e-6


def rms_norm(x, weight):
    return x * (x.square().mean(-1, keepdim=True) + EPS).rsqrt() * weight


class Ranks:
    """Groups of data-parallel attention, and of tensor parallelism within each."""

    def __init__(self, mesh):
        self.attn_tp_group = mesh.get_group("attn_tp")
        self.attn_dp_rank = mesh.get_local_rank("attn_dp")
        self.attn_dp_size = mesh.size(0)
        self.attn_tp_rank = mesh.get_local_rank("attn_tp")
        self.attn_tp_size = mesh.size(1)
        self.tp_rank = self.attn_dp_rank * self.attn_tp_size + self.attn_tp_rank
        self.tp_size = self.attn_dp_size * self.attn_tp_size

    def attn_tp_all_reduce(self, x):
        dist.all_reduce(x, group=self.attn_tp_group)
        return x

    def tp_all_reduce(self, x):
        dist.all_reduce(x)
        return x

    def _dp_gather(self, local, is_partial):
        """Every rank's tokens at their place among all of them; what is partial is summed on the way."""
        rows = local.shape[0]
        tokens = torch.zeros(rows * self.attn_dp_size, *local.shape[1:])
        if is_partial or self.attn_tp_rank == 0:
            start = self.attn_dp_rank * rows
            tokens[start : start + rows] = local
        return self.tp_all_reduce(tokens)  # near

    def dp_gather_partial(self, local):
        return self._dp_gather(local, is_partial=True)

    def dp_gather_replicate(self, local):
        return self._dp_gather(local, is_partial=False)

    def dp_scatter(self, tokens):
        return tokens.chunk(self.attn_dp_size)[self.attn_dp_rank]


def attention(q, k, v):
    """Within each of the sequences."""
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * DIM**-0.5
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)


class DecoderLayer(nn.Module):
    """With ranks: heads are split within a group, channels of the MLP over all of them."""

    def __init__(self, ranks=None):
        super().__init__()
        self.ranks = ranks
        heads = HEADS // (1 if ranks is None else ranks.attn_tp_size)
        inner = INNER // (1 if ranks is None else ranks.tp_size)
        self.input_norm, self.post_norm = (nn.Parameter(torch.rand(HIDDEN) + 0.5) for _ in range(2))
        self.q, self.k, self.v = (nn.Linear(HIDDEN, heads * DIM, bias=False) for _ in range(3))
        self.o = nn.Linear(heads * DIM, HIDDEN, bias=False)
        self.up, self.down = nn.Linear(HIDDEN, inner, bias=False), nn.Linear(inner, HIDDEN, bias=False)

    def self_attn(self, x):
        q, k, v = (proj(x).unflatten(-1, (-1, DIM)) for proj in (self.q, self.k, self.v))
        out = self.o(attention(q, k, v).flatten(-2))
        return out if self.ranks is None else self.ranks.attn_tp_all_reduce(out)

    def mlp(self, x):
        out = self.down(torch.tanh(self.up(x)))
        return out if self.ranks is None else self.ranks.tp_all_reduce(out)

    def forward(self, x):
        x = x + self.self_attn(rms_norm(x, self.input_norm))
        hidden = rms_norm(x, self.post_norm)
        if self.ranks is not None:
            hidden = self.ranks.dp_gather_partial(hidden)  # fixed: hidden = self.ranks.dp_gather_replicate(hidden)
        hidden = self.mlp(hidden)
        if self.ranks is not None:
            hidden = self.ranks.dp_scatter(hidden)
        return x + hidden


def load_weights(state, layer, mesh):
    ranks = layer.ranks
    for name, parameter in layer.named_parameters():
        tensor = state[name]
        by_all = name.startswith(("up", "down"))
        rank, size = (ranks.tp_rank, ranks.tp_size) if by_all else (ranks.attn_tp_rank, ranks.attn_tp_size)
        if "norm" not in name:
            tensor = tensor.chunk(size, dim=1 if name.startswith(("o.", "down")) else 0)[rank]
        with torch.no_grad():
            parameter.copy_(tensor)


@gg.check(mesh={"attn_dp": 2, "attn_tp": 2})
def check(mesh):
    relation = {"attn_dp": Shard(0), "attn_tp": Replicate()}
    return gg.Refinement(
        DecoderLayer(),
        DecoderLayer(Ranks(mesh)),
        (gg.tensor(4, TOKENS, HIDDEN),),
        load=load_weights,
        in_relations=(relation,),
        out_relations=(relation,),
        grads=False,
    )
