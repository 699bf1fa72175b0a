"""A Llama, sequential (no group) or tensor-parallel by hand as Megatron-LM does it: the model that tracing is measured on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812  # PyTorch's own idiom
from torch import nn


@dataclass(frozen=True)
class Config:
    """Llama-3-8B by default."""

    dim: int = 4096
    heads: int = 32
    kv_heads: int = 8
    hidden: int = 14336
    vocab: int = 128256
    layers: int = 2
    theta: float = 500000.0

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(_: Any, grad: torch.Tensor) -> Any:
        return grad, None


class VocabParallelLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, target: torch.Tensor, group: Any) -> torch.Tensor:
        largest = logits.max(-1)[0]
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
        logits = logits - largest.unsqueeze(-1)
        low = dist.get_rank(group) * logits.shape[-1]
        elsewhere = (target < low) | (target >= low + logits.shape[-1])
        index = target - low
        index[elsewhere] = 0
        predicted = logits.gather(-1, index.unsqueeze(-1)).squeeze(-1).clone()
        predicted[elsewhere] = 0.0
        dist.all_reduce(predicted, group=group)
        exponentials = logits.exp()
        total = exponentials.sum(-1)
        dist.all_reduce(total, group=group)
        ctx.save_for_backward(exponentials.div_(total.unsqueeze(-1)), elsewhere, index)
        return total.log() - predicted

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        softmax, elsewhere, index = ctx.saved_tensors
        result = softmax.clone()
        result[torch.arange(result.shape[0]), index] -= 1.0 - elsewhere.to(result.dtype)
        return result * grad.unsqueeze(-1), None, None


class RMSNorm(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x) * self.weight


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return x * cos.to(x.dtype) + torch.cat([-second, first], -1) * sin.to(x.dtype)


class Block(nn.Module):
    def __init__(self, config: Config, group: Any) -> None:
        super().__init__()
        self.config, self.group = config, group
        ways = 1 if group is None else dist.get_world_size(group)
        inner, keys, hidden = config.dim // ways, config.kv_heads * config.head_dim // ways, config.hidden // ways
        self.attention_norm, self.mlp_norm = RMSNorm(config.dim), RMSNorm(config.dim)
        self.wq = nn.Linear(config.dim, inner, bias=False)
        self.wk = nn.Linear(config.dim, keys, bias=False)
        self.wv = nn.Linear(config.dim, keys, bias=False)
        self.wo = nn.Linear(inner, config.dim, bias=False)
        self.w1 = nn.Linear(config.dim, hidden, bias=False)
        self.w3 = nn.Linear(config.dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, config.dim, bias=False)

    def enter(self, x: torch.Tensor) -> torch.Tensor:
        return x if self.group is None else Copy.apply(x, self.group)

    def leave(self, x: torch.Tensor) -> torch.Tensor:
        return x if self.group is None else Reduce.apply(x, self.group)

    def attend(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = x.shape
        q, k, v = (
            w(x).view(batch, tokens, -1, self.config.head_dim).transpose(1, 2) for w in (self.wq, self.wk, self.wv)
        )
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        repeat = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(repeat, dim=1), v.repeat_interleave(repeat, dim=1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(out.transpose(1, 2).reshape(batch, tokens, -1))

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.leave(self.attend(self.enter(self.attention_norm(x)), cos, sin))
        y = self.enter(self.mlp_norm(x))
        return x + self.leave(self.w2(F.silu(self.w1(y)) * self.w3(y)))


class Embedding(nn.Module):
    def __init__(self, config: Config, group: Any) -> None:
        super().__init__()
        self.group = group
        self.rows = config.vocab // (1 if group is None else dist.get_world_size(group))
        self.weight = nn.Parameter(torch.empty(self.rows, config.dim))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        if self.group is None:
            return F.embedding(tokens, self.weight)
        low = dist.get_rank(self.group) * self.rows
        elsewhere = (tokens < low) | (tokens >= low + self.rows)
        index = tokens - low
        index[elsewhere] = 0
        found = F.embedding(index, self.weight)
        found[elsewhere, :] = 0.0
        return Reduce.apply(found, self.group)


class Llama(nn.Module):
    """Tokens and labels of shape (batch, tokens) to the mean loss."""

    def __init__(self, config: Config, group: Any = None) -> None:
        super().__init__()
        self.config, self.group = config, group
        ways = 1 if group is None else dist.get_world_size(group)
        self.embedding = Embedding(config, group)
        self.layers = nn.ModuleList(Block(config, group) for _ in range(config.layers))
        self.norm = RMSNorm(config.dim)
        self.head = nn.Linear(config.dim, config.vocab // ways, bias=False)

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        exponents = torch.arange(0, self.config.head_dim, 2).float() / self.config.head_dim
        angles = torch.outer(torch.arange(tokens.shape[1]).float(), self.config.theta**-exponents)
        angles = torch.cat([angles, angles], -1)
        cos, sin = angles.cos(), angles.sin()
        for layer in self.layers:
            x = layer(x, cos, sin)
        x = self.norm(x)
        if self.group is None:
            logits = self.head(x).float()
            return F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        logits = self.head(Copy.apply(x, self.group)).float()
        return VocabParallelLoss.apply(logits.flatten(0, 1), labels.flatten(), self.group).mean()
