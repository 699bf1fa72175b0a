"""Layers at Llama-3-8B's size, as checks: what :mod:`benchmarks.engine` stacks, and whole models that it proves as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from llama_tp import Block, Config, Llama
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

TOKENS = 128


class Gathered(Block):
    """The layer with sequence parallelism: tokens are divided between the ranks outside attention and MLP."""

    def enter(self, x: torch.Tensor) -> torch.Tensor:
        if self.group is None:
            return x
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(self.group))]
        dist.all_gather(parts, x.contiguous(), group=self.group)
        return torch.cat(parts, 1)

    def leave(self, x: torch.Tensor) -> torch.Tensor:
        if self.group is None:
            return x
        ways = dist.get_world_size(self.group)
        out = torch.empty_like(x[:, : x.shape[1] // ways])
        dist.reduce_scatter(out, [part.contiguous() for part in x.chunk(ways, 1)], group=self.group)
        return out


class Layer(nn.Module):
    """One layer with its own rotary tables; x of shape (batch, tokens, dim)."""

    def __init__(self, kind: type[Block], config: Config, group: Any = None) -> None:
        super().__init__()
        self.config = config
        self.block = kind(config, group)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        exponents = torch.arange(0, self.config.head_dim, 2).float() / self.config.head_dim
        angles = torch.outer(torch.arange(TOKENS).float(), self.config.theta**-exponents)
        angles = torch.cat([angles, angles], -1)
        return self.block(x, angles.cos(), angles.sin())


def in_bfloat16(build: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A check whose modules are built in bfloat16."""

    def check(mesh: Any) -> Any:
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        try:
            return build(mesh)
        finally:
            torch.set_default_dtype(before)

    return check


def layer(ways: int, kind: type[Block] = Block, backward: bool = False, **sizes: int) -> Any:
    """A check of one layer."""

    def build(mesh: Any) -> Any:
        config = Config(layers=1, **sizes)
        x = gg.tensor(1, TOKENS, config.dim, dtype=torch.bfloat16)
        shards = ({"tp": Shard(1)},) if kind is Gathered else None
        impl = Layer(kind, config, mesh.get_group("tp"))
        return gg.Refinement(spec=Layer(Block, config), impl=impl, inputs=(x,), in_relations=shards, grads=backward)

    return gg.check(mesh={"tp": ways})(in_bfloat16(build))


def model(ways: int, layers: int) -> Any:
    """A check of a whole model with its loss, forward and backward."""

    def build(mesh: Any) -> Any:
        config = Config(layers=layers)
        tokens, labels = (gg.tensor(1, TOKENS, dtype=torch.int64) for _ in range(2))
        impl = Llama(config, mesh.get_group("tp"))
        return gg.Refinement(spec=Llama(config), impl=impl, inputs=(tokens, labels))

    return gg.check(mesh={"tp": ways})(in_bfloat16(build))


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attention of (heads, tokens, size), not masked."""
    return torch.softmax(q @ k.transpose(1, 2) / q.shape[-1] ** 0.5, -1) @ v


def ring(_: Any) -> Callable[..., torch.Tensor]:
    """The same with tokens divided over the ranks: keys and values go round, the softmax is kept up to date."""
    rank, world = dist.get_rank(), dist.get_world_size()

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        top, total, out = None, None, None
        for step in range(world):
            scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
            here = scores.amax(-1, keepdim=True)
            new = here if top is None else torch.maximum(top, here)
            weights = torch.exp(scores - new)
            if top is None:
                total, out = weights.sum(-1, keepdim=True), weights @ v
            else:
                scale = torch.exp(top - new)
                total, out = total * scale + weights.sum(-1, keepdim=True), out * scale + weights @ v
            top = new
            if step + 1 < world:
                k, v = turned(k, rank, world), turned(v, rank, world)
        return out / total

    return run


def turned(x: torch.Tensor, rank: int, world: int) -> torch.Tensor:
    """What the rank before holds."""
    got = torch.empty_like(x)
    calls = [
        dist.P2POp(dist.isend, x.contiguous(), (rank + 1) % world),
        dist.P2POp(dist.irecv, got, (rank - 1) % world),
    ]
    for request in dist.batch_isend_irecv(calls):
        request.wait()
    return got


@gg.check(mesh={"cp": 16})
def ring_of_16(mesh: Any) -> Any:
    """Ring attention over 16 ranks."""
    inputs = tuple(gg.tensor(8, 4096, 64) for _ in range(3))
    return gg.Refinement(spec=attend, impl=ring(mesh), inputs=inputs, in_relations=({"cp": Shard(1)},) * 3, grads=False)


layer_tp2 = layer(2)
layer_tp2_backward = layer(2, backward=True)
layer_tp8_sequence = layer(8, Gathered)
layer_tp16 = layer(16, dim=16384, heads=128, kv_heads=16, hidden=53248)  # of Llama-3-405B, a KV head a rank
model_tp8_backward = model(8, 1)
