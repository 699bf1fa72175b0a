"""Ulysses with fewer key heads than divide: queries and keys are padded each by itself, and a rank's queries meet other key heads than theirs. vLLM-Omni.

Source: https://github.com/vllm-project/vllm-omni/pull/5716
Rule: wrong-shard, wrong-relation
"""

import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

TOKENS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM = 4, 5, 12, 3, 2


def attention(q, k, v):
    """(tokens, heads, dim); each key head serves as many query heads."""
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    scores = torch.einsum("qhd,khd->hqk", q, k) * HEAD_DIM**-0.5
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v)


class Attention(nn.Module):
    """The transformer's attention over all tokens: the specification."""

    def __init__(self, impl=attention):
        super().__init__()
        self.to_q = nn.Linear(HIDDEN, HEADS * HEAD_DIM, bias=False)
        self.to_k = nn.Linear(HIDDEN, KV_HEADS * HEAD_DIM, bias=False)
        self.to_v = nn.Linear(HIDDEN, KV_HEADS * HEAD_DIM, bias=False)
        self.to_out = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)
        self.impl = impl

    @torch.no_grad()
    def forward(self, x):
        q, k, v = (project(x).unflatten(-1, (-1, HEAD_DIM)) for project in (self.to_q, self.to_k, self.to_v))
        return self.to_out(self.impl(q, k, v).flatten(1))


def pad_heads(tensor, count):
    return F.pad(tensor, (0, 0, 0, count - tensor.shape[1]))


def round_up(count, size):
    return math.ceil(count / size) * size


class SeqAllToAll4D:
    """Own tokens of all heads to all tokens of own heads, and back."""

    def __init__(self, group):
        self.group = group
        self.size = dist.get_world_size(group)

    def exchanged(self, chunks):
        send = torch.stack([chunk.contiguous() for chunk in chunks])
        received = torch.empty_like(send)
        dist.all_to_all_single(received, send, group=self.group)
        return received

    def scatter_heads(self, tensor):
        return self.exchanged(tensor.chunk(self.size, dim=1)).flatten(0, 1)

    def gather_heads(self, tensor):
        return torch.cat(list(self.exchanged(tensor.chunk(self.size, dim=0))), dim=1)


class UlyssesParallelAttention:
    """Attention on all tokens for the own heads; heads that do not divide are padded with zeros."""

    def __init__(self, group):
        self.comm = SeqAllToAll4D(group)
        self.world_size = dist.get_world_size(group)

    def padded_counts(self, num_heads, num_kv_heads):
        padded_kv = round_up(num_kv_heads, self.world_size)
        padded_q = round_up(num_heads, self.world_size)  # fixed: padded_q = padded_kv * (num_heads // num_kv_heads)
        return padded_q, padded_kv

    def pre_attention(self, q, k, v):
        padded_q, padded_kv = self.padded_counts(q.shape[1], k.shape[1])
        q = pad_heads(q, padded_q)  # fault
        k, v = pad_heads(k, padded_kv), pad_heads(v, padded_kv)
        return tuple(self.comm.scatter_heads(each) for each in (q, k, v))

    def post_attention(self, out, num_heads):
        return self.comm.gather_heads(out)[:, :num_heads]

    def __call__(self, q, k, v):
        out = attention(*self.pre_attention(q, k, v))  # near
        return self.post_attention(out, q.shape[1])


@gg.check(mesh={"sp": 2})
def check(mesh):
    rows = {"sp": Shard(0)}
    parallel = Attention(UlyssesParallelAttention(mesh.get_group("sp")))
    return gg.Refinement(
        Attention(), parallel, (gg.tensor(TOKENS, HIDDEN),), in_relations=rows, out_relations=rows, load=load, grads=False
    )


def load(state, model, mesh):
    model.load_state_dict(state)
