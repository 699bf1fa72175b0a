"""Decode context parallelism deals a cache's tokens to the ranks, and so it does with the sliding window's cache, which all ranks have whole. vLLM.

Source: https://github.com/vllm-project/vllm/pull/57260
Rule: wrong-relation, wrong-shard
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

import graphguard as gg

CACHED, HIDDEN, HEADS, DIM, BLOCK, WINDOW, PAD = 7, 6, 2, 3, 2, 4, -1
SLOTS = 8


@dataclass(frozen=True)
class AttentionSpec:
    """What a layer keeps of each token."""

    block_size: int
    sliding_window: int = 0

    @property
    def is_context_parallel(self):
        """Windows are short: nothing is gained by dealing them out."""
        return self.sliding_window == 0


class BlockTable:
    """Where a layer's tokens lie in the cache of this rank."""

    def __init__(self, spec, rank, size):
        self.spec = spec
        self.cp_rank = rank
        self.cp_size = size  # fixed: self.cp_size = size if spec.is_context_parallel else 1

    def slot(self, position):
        block_size = self.spec.block_size
        virtual_block = block_size * self.cp_size
        index, offset = divmod(position, virtual_block)
        if self.cp_size > 1 and offset % self.cp_size != self.cp_rank:
            return PAD
        return index * block_size + offset // self.cp_size

    def slot_mapping(self, positions):
        return [self.slot(position) for position in positions]  # fault


class KVCache:
    def __init__(self, table):
        self.table = table
        self.keys, self.values = torch.zeros(SLOTS, HEADS, DIM), torch.zeros(SLOTS, HEADS, DIM)

    def write(self, keys, values, first=0):
        slots = self.table.slot_mapping(range(first, first + keys.shape[0]))
        for i, slot in enumerate(slots):
            if slot != PAD:
                self.keys[slot] = keys[i]
                self.values[slot] = values[i]

    def read(self, slots):
        return self.keys[slots], self.values[slots]


def attend(q, k, v):
    """One query over its keys; what it gives and the logarithm of its sum."""
    scores = torch.einsum("hd,khd->hk", q, k) * DIM**-0.5
    return torch.einsum("hk,khd->hd", scores.softmax(-1), v), scores.logsumexp(-1)


class Layer(nn.Module):
    """Norm, attention, residual."""

    def __init__(self, spec):
        super().__init__()
        self.spec = spec
        self.norm = nn.Parameter(torch.rand(HIDDEN) + 0.5)
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(HIDDEN, HEADS * DIM, bias=False) for _ in range(3))
        self.o_proj = nn.Linear(HEADS * DIM, HIDDEN, bias=False)

    def qkv(self, hidden):
        normed = hidden * (hidden.square().mean() + 1e-6).rsqrt() * self.norm
        return tuple(proj(normed).view(HEADS, DIM) for proj in (self.q_proj, self.k_proj, self.v_proj))

    def forward(self, hidden, keys, values):
        q, k, v = self.qkv(hidden)
        keys, values = torch.cat([keys, k[None]]), torch.cat([values, v[None]])
        if window := self.spec.sliding_window:
            keys, values = keys[-window:], values[-window:]
        return hidden + self.o_proj(attend(q, keys, values)[0].flatten())


class CachedLayer(Layer):
    """The same with this rank's cache."""

    def __init__(self, spec, group):
        super().__init__(spec)
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def merged(self, out, lse):
        """The ranks' parts of one softmax."""
        parts = [torch.empty_like(lse) for _ in range(self.size)]
        dist.all_gather(parts, lse, group=self.group)
        out = out * (lse - torch.stack(parts).logsumexp(0)).exp()[:, None]
        dist.all_reduce(out, group=self.group)
        return out

    def forward(self, hidden, keys, values):
        q, k, v = self.qkv(hidden)
        cache = KVCache(BlockTable(self.spec, self.rank, self.size))
        cache.write(keys, values)
        cache.write(k[None], v[None], first=CACHED)
        length = CACHED + 1
        if window := self.spec.sliding_window:
            out, _ = attend(q, *cache.read(list(range(length - window, length))))  # near
        else:
            own = [slot for slot in cache.table.slot_mapping(range(length)) if slot != PAD]
            out = self.merged(*attend(q, *cache.read(own)))
        return hidden + self.o_proj(out.flatten())


class Model(nn.Module):
    """One layer that sees everything, one that sees the last tokens."""

    def __init__(self, make):
        super().__init__()
        self.layers = nn.ModuleList([make(AttentionSpec(BLOCK)), make(AttentionSpec(BLOCK, WINDOW))])

    def forward(self, hidden, *caches):
        for layer, keys, values in zip(self.layers, caches[::2], caches[1::2], strict=True):
            hidden = layer(hidden, keys, values)
        return hidden


def load_weights(state, model, mesh):
    model.load_state_dict(state)


@gg.check(mesh={"dcp": 2})
def check(mesh):
    group = mesh.get_group("dcp")
    caches = [gg.tensor(CACHED, HEADS, DIM) for _ in range(4)]
    return gg.Refinement(
        Model(Layer),
        Model(lambda spec: CachedLayer(spec, group)),
        (gg.tensor(HIDDEN), *caches),
        load=load_weights,
        out_relations="replicate",
        grads=False,
    )
