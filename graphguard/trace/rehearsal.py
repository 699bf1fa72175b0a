"""Records a small program of our own in the worker before any child is forked, so that no child pays for what torch loads on first use."""

from __future__ import annotations

import gc
import importlib

import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody uses
from torch import nn
from torch.distributed.tensor import DTensor, Replicate, Shard

from graphguard.trace.capture import Recording
from graphguard.trace.world import World

# What children use and the rehearsal itself does not reach.
_LOADED = ("graphguard.trace.ranks", "graphguard.confirm.check")


class _Sample(nn.Module):
    """A little of everything that models are made of."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(8, 4)
        self.norm = nn.LayerNorm(4)
        self.linear = nn.Linear(4, 4)
        self.register_buffer("mask", torch.tril(torch.ones(2, 2)))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.linear(self.norm(self.embedding(tokens)))
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        scores = (x @ x.transpose(-1, -2)).masked_fill(self.mask == 0, float("-inf")).softmax(-1)
        y = torch.cat([F.silu(scores @ x), F.gelu(x)], -1).chunk(2, -1)[0]
        heads = y.unflatten(-1, (2, 2)).transpose(1, 2)
        y = F.scaled_dot_product_attention(heads, heads, heads, is_causal=True).transpose(1, 2).flatten(2)
        return F.cross_entropy(y.reshape(-1, 4), tokens.reshape(-1) % 4)


def rehearse() -> None:
    """Record the sample on its own and with a distributed tensor; forget everything but what was loaded."""
    for name in _LOADED:
        importlib.import_module(name)
    with World(0, {"a": 2}) as world, Recording(world) as recording:
        sample = _Sample()
        tokens = recording.leaf("tokens", (1, 2), torch.int64)
        recording.phase = "forward"
        loss = sample(tokens)
        placed = DTensor.from_local(torch.ones(2, 2), world.mesh, [Shard(0)])
        whole = placed.redistribute(world.mesh, [Replicate()]).to_local()
        recording.phase = "backward"
        (loss + whole.sum()).backward()
        recording.output("out", loss)
    recording.finish()
    settle()


def settle() -> None:
    """Forget what is not needed and have the collector leave the rest alone: children share memory that nobody writes to."""
    gc.collect()
    gc.freeze()
