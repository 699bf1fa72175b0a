"""A Llama decoder layer, sequential and tensor-parallel: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

The parallel layer keeps some heads and some hidden features on every rank; norms are the same on all ranks. Both the forward
and the backward pass are checked.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg


@dataclass(frozen=True)
class Config:
    dim: int = 40
    heads: int = 8
    kv_heads: int = 4
    head_dim: int = 6
    hidden: int = 56
    eps: float = 1e-5
    theta: float = 10000.0


class RMSNorm(nn.Module):
    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rotary_table(tokens: int, config: Config) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of shape (tokens, head_dim)."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    angles = torch.outer(torch.arange(tokens, dtype=torch.float32), config.theta**-exponents)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding of (batch, heads, tokens, head_dim)."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, config: Config) -> torch.Tensor:
    """Causal grouped-query attention; (batch, tokens, features) in and out, whatever number of heads this rank has."""
    batch, tokens, _ = q.shape
    q, k, v = (t.view(batch, tokens, -1, config.head_dim).transpose(1, 2) for t in (q, k, v))
    cos, sin = rotary_table(tokens, config)
    q, k = rotate(q, cos, sin), rotate(k, cos, sin)
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    mask = torch.full((tokens, tokens), float("-inf")).triu(1)
    weights = F.softmax(q @ k.transpose(-1, -2) * config.head_dim**-0.5 + mask, dim=-1)
    return (weights @ v).transpose(1, 2).reshape(batch, tokens, -1)


class Attention(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.wq = nn.Linear(config.dim, config.heads * config.head_dim, bias=False)
        self.wk = nn.Linear(config.dim, config.kv_heads * config.head_dim, bias=False)
        self.wv = nn.Linear(config.dim, config.kv_heads * config.head_dim, bias=False)
        self.wo = nn.Linear(config.heads * config.head_dim, config.dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.wo(attend(self.wq(x), self.wk(x), self.wv(x), self.config))


class FeedForward(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.gate = nn.Linear(config.dim, config.hidden, bias=False)
        self.up = nn.Linear(config.dim, config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class DecoderLayer(nn.Module):
    """The specification."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.dim, config.eps)
        self.attention = Attention(config)
        self.ffn_norm = RMSNorm(config.dim, config.eps)
        self.ffn = FeedForward(config)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.ffn(self.ffn_norm(x))


class CopyToTensorParallel(torch.autograd.Function):
    """Identity forward, all-reduce backward."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class ReduceFromTensorParallel(torch.autograd.Function):
    """All-reduce forward, identity backward."""

    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class ParallelAttention(nn.Module):
    """Every rank has some of the query heads and the key and value heads that go with them."""

    def __init__(self, config: Config, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.config, self.group = config, group
        ranks = dist.get_world_size(group)
        heads, kv_heads = config.heads // ranks, config.kv_heads // ranks
        self.wq = nn.Linear(config.dim, heads * config.head_dim, bias=False)
        self.wk = nn.Linear(config.dim, kv_heads * config.head_dim, bias=False)
        self.wv = nn.Linear(config.dim, kv_heads * config.head_dim, bias=False)
        self.wo = nn.Linear(heads * config.head_dim, config.dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = CopyToTensorParallel.apply(x, self.group)
        y = self.wo(attend(self.wq(x), self.wk(x), self.wv(x), self.config))
        return ReduceFromTensorParallel.apply(y, self.group)


class ParallelFeedForward(nn.Module):
    """Every rank has some of the hidden features."""

    def __init__(self, config: Config, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.group = group
        hidden = config.hidden // dist.get_world_size(group)
        self.gate = nn.Linear(config.dim, hidden, bias=False)
        self.up = nn.Linear(config.dim, hidden, bias=False)
        self.down = nn.Linear(hidden, config.dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = CopyToTensorParallel.apply(x, self.group)
        y = self.down(F.silu(self.gate(x)) * self.up(x))
        return ReduceFromTensorParallel.apply(y, self.group)


class ParallelDecoderLayer(nn.Module):
    """The implementation."""

    def __init__(self, config: Config, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.dim, config.eps)
        self.attention = ParallelAttention(config, group)
        self.ffn_norm = RMSNorm(config.dim, config.eps)
        self.ffn = ParallelFeedForward(config, group)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.ffn(self.ffn_norm(x))


@gg.check(mesh=[{"tp": 2}, {"tp": 4}])
def llama_layer(mesh):
    config = Config()
    return gg.Refinement(
        spec=DecoderLayer(config),
        impl=ParallelDecoderLayer(config, mesh.get_group("tp")),
        inputs=(gg.tensor(2, 5, config.dim),),
        out_relations="replicate",
    )
