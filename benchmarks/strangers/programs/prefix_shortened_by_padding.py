"""Prefill over context ranks pads its tokens; the length of the cached prefix is told by the padded number. SGLang.

Source: https://github.com/sgl-project/sglang/pull/23415
Rule: wrong-relation, wrong-shard
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

PREFIX, EXTEND, HIDDEN, HEADS, DIM, EPS = 4, 7, 5, 2, 3, 1e-6


def ceil_align(number, multiple):
    return -(-number // multiple) * multiple


@dataclass
class ForwardBatch:
    """One request: what is in the cache already, and what is new."""

    seq_len: int
    extend_len: int


@dataclass
class ContextParallelMetadata:
    """The tokens are dealt in chunks from both ends; each chunk sees keys up to its own end."""

    split: int
    chunks: tuple
    kv_lens: tuple
    reverse_index: list


def prepare_context_parallel_metadata(kv_len, batch, cp_rank, cp_size):
    """``kv_len`` counts the tokens of this pass, with padding."""
    split = kv_len // (2 * cp_size)
    chunks = (cp_rank, 2 * cp_size - 1 - cp_rank)
    prefix_len = max(batch.seq_len - kv_len, 0)  # fixed: prefix_len = batch.seq_len - batch.extend_len
    kv_lens = tuple(prefix_len + (chunk + 1) * split for chunk in chunks)  # fault
    dealt = [chunk for rank in range(cp_size) for chunk in (rank, 2 * cp_size - 1 - rank)]
    return ContextParallelMetadata(split, chunks, kv_lens, [dealt.index(i) for i in range(2 * cp_size)])


def attention_with_cache(q, k, v):
    """Causal, with the last query at the last key."""
    scores = torch.einsum("qhd,khd->hqk", q, k) * DIM**-0.5
    rows = torch.arange(q.shape[0])[:, None] + k.shape[0] - q.shape[0]
    scores = scores.masked_fill(torch.arange(k.shape[0])[None, :] > rows, float("-inf"))
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(HIDDEN, HEADS * DIM, bias=False)
        self.k_proj = nn.Linear(HIDDEN, HEADS * DIM, bias=False)
        self.v_proj = nn.Linear(HIDDEN, HEADS * DIM, bias=False)
        self.o_proj = nn.Linear(HEADS * DIM, HIDDEN, bias=False)

    def qkv(self, x):
        return tuple(proj(x).unflatten(-1, (HEADS, DIM)) for proj in (self.q_proj, self.k_proj, self.v_proj))

    def forward(self, x, k_cache, v_cache):
        q, k, v = self.qkv(x)
        out = attention_with_cache(q, torch.cat([k_cache, k]), torch.cat([v_cache, v]))
        return self.o_proj(out.flatten(1))


class ContextParallel:
    def __init__(self, group):
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def pad(self, x):
        return F.pad(x, (0, 0, 0, ceil_align(x.shape[0], 2 * self.size) - x.shape[0]))

    def metadata(self, kv_len, batch):
        return prepare_context_parallel_metadata(kv_len, batch, self.rank, self.size)

    def deal(self, x, metadata):
        chunks = x.split(metadata.split)
        return torch.cat([chunks[i] for i in metadata.chunks])

    def gather(self, x, metadata):
        """All tokens, in order."""
        parts = [torch.empty_like(x) for _ in range(self.size)]
        dist.all_gather(parts, x.contiguous(), group=self.group)
        chunks = torch.cat(parts).split(metadata.split)
        return torch.cat([chunks[i] for i in metadata.reverse_index])


class ContextParallelAttention(Attention):
    """Queries stay where they are; keys and values are gathered behind those of the cache."""

    def __init__(self, cp):
        super().__init__()
        self.cp = cp

    def forward(self, x, k_cache, v_cache, metadata):
        q, k, v = self.qkv(x)
        keys = torch.cat([k_cache, self.cp.gather(k, metadata)])
        values = torch.cat([v_cache, self.cp.gather(v, metadata)])
        halves = zip(q.split(metadata.split), metadata.kv_lens, strict=True)
        outs = [attention_with_cache(half, keys[:length], values[:length]) for half, length in halves]  # near
        return self.o_proj(torch.cat(outs).flatten(1))


class DecoderLayer(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.input_layernorm = nn.Parameter(torch.rand(HIDDEN) + 0.5)
        self.self_attn = attention
        self.mlp = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, hidden, *cache):
        normed = hidden * (hidden.square().mean(-1, keepdim=True) + EPS).rsqrt() * self.input_layernorm
        hidden = hidden + self.self_attn(normed, *cache)
        return hidden + torch.tanh(self.mlp(hidden))


class ModelRunner(nn.Module):
    """Pads, deals, runs the layer, and puts the tokens together again."""

    def __init__(self, layer, cp):
        super().__init__()
        self.layer, self.cp = layer, cp

    def forward(self, hidden, k_cache, v_cache):
        extend_len = hidden.shape[0]
        batch = ForwardBatch(k_cache.shape[0] + extend_len, extend_len)
        padded = self.cp.pad(hidden)
        metadata = self.cp.metadata(padded.shape[0], batch)
        out = self.layer(self.cp.deal(padded, metadata), k_cache, v_cache, metadata)
        return self.cp.gather(out, metadata)[:extend_len]


def load_weights(state, runner, mesh):
    runner.layer.load_state_dict(state)


@gg.check(mesh={"cp": 2})
def check(mesh):
    cp = ContextParallel(mesh.get_group("cp"))
    impl = ModelRunner(DecoderLayer(ContextParallelAttention(cp)), cp)
    cache = gg.tensor(PREFIX, HEADS, DIM)
    inputs = (gg.tensor(EXTEND, HIDDEN), cache, cache)
    spec = DecoderLayer(Attention())
    return gg.Refinement(spec, impl, inputs, load=load_weights, out_relations="replicate", grads=False)
