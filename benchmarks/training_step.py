"""A training step of a Llama as large jobs run it: layers over stages (1F1B), heads, columns and vocabulary over tp, samples over dp, gradients and Adam.

:mod:`benchmarks.whole_projects` writes the constants of the first lines anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812  # PyTorch's own idiom
from llama_tp import Block, Config, Copy, Embedding, RMSNorm, VocabParallelLoss
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

DP, PP, TP, LAYERS, MICRO = 2, 2, 2, 4, 3
CONFIG = Config(dim=64, heads=16, kv_heads=8, hidden=96, vocab=320)
TOKENS, RATE, BETA1, BETA2, EPS = 16, 1e-3, 0.9, 0.95, 1e-8


def rotations() -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of rotary positions, of shape (tokens, head dim)."""
    exponents = torch.arange(0, CONFIG.head_dim, 2).float() / CONFIG.head_dim
    angles = torch.outer(torch.arange(TOKENS).float(), CONFIG.theta**-exponents)
    angles = torch.cat([angles, angles], -1)
    return angles.cos(), angles.sin()


class Head(nn.Module):
    def __init__(self, group: Any = None) -> None:
        super().__init__()
        self.group = group
        self.norm = RMSNorm(CONFIG.dim)
        self.out = nn.Linear(
            CONFIG.dim, CONFIG.vocab // (1 if group is None else dist.get_world_size(group)), bias=False
        )

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        x = self.norm(x)
        if self.group is None:
            return F.cross_entropy(self.out(x).flatten(0, 1), target.flatten())
        logits = self.out(Copy.apply(x, self.group)).flatten(0, 1)
        loss: torch.Tensor = VocabParallelLoss.apply(logits, target.flatten(), self.group).mean()
        return loss


class Stage(nn.Module):
    """Some of the layers; with the embedding if it is the first stage, and the head if it is the last."""

    def __init__(self, layers: Iterable[int], is_first: bool = True, is_last: bool = True, group: Any = None) -> None:
        super().__init__()
        self.embedding = Embedding(CONFIG, group) if is_first else None
        self.layers = nn.ModuleDict({str(number): Block(CONFIG, group) for number in layers})
        self.head = Head(group) if is_last else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        cos, sin = rotations()
        if self.embedding is not None:
            x = self.embedding(x)
        for layer in self.layers.values():
            x = layer(x, cos, sin)
        return x


@torch.no_grad()
def adam(module: nn.Module) -> dict[str, torch.Tensor]:
    """The parameters after a first step."""
    found = {}
    for name, parameter in module.named_parameters():
        grad = parameter.grad
        assert grad is not None
        mean, square = (1 - BETA1) * grad / (1 - BETA1), (1 - BETA2) * grad.square() / (1 - BETA2)
        parameter.sub_(RATE * mean / (square.sqrt() + EPS))
        found[name] = parameter.detach()
    return found


class Whole(Stage):
    def __init__(self) -> None:
        super().__init__(range(LAYERS))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        assert self.head is not None
        self.head(super().forward(x), y).backward()
        return adam(self)


def dealt(stage: int) -> range:
    """The layers of a stage; where they do not divide, the first and the last have one less, for what else they have."""
    if LAYERS % PP == 0:
        return range(stage * LAYERS // PP, (stage + 1) * LAYERS // PP)
    each = (LAYERS + 2) // PP
    return range(max(0, stage * each - 1), min(LAYERS, (stage + 1) * each - 1))


class Pipeline(nn.Module):
    def __init__(self, mesh: Any) -> None:
        super().__init__()
        self.pp, self.dp_group, self.group = mesh.get_local_rank("pp"), mesh.get_group("dp"), mesh.get_group("pp")
        self.is_first, self.is_last = self.pp == 0, self.pp == PP - 1
        self.ranks = dist.get_process_group_ranks(self.group)
        self.stage = Stage(dealt(self.pp), self.is_first, self.is_last, mesh.get_group("tp"))
        self.waiting: list[tuple[torch.Tensor, torch.Tensor]] = []

    def exchange(self, sent: torch.Tensor | None, to: int, like: torch.Tensor | None, source: int) -> Any:
        """Send to a stage and receive from one at once; None where there is nobody."""
        ops, got = [], None
        if sent is not None and 0 <= to < PP:
            ops.append(dist.P2POp(dist.isend, sent, self.ranks[to], self.group))
        if like is not None and 0 <= source < PP:
            got = torch.empty_like(like)
            ops.append(dist.P2POp(dist.irecv, got, self.ranks[source], self.group))
        for work in dist.batch_isend_irecv(ops) if ops else ():
            work.wait()
        return got

    def ahead(self, entry: torch.Tensor, target: torch.Tensor) -> torch.Tensor | None:
        """One micro-batch forward; what the next stage gets."""
        if not self.is_first:
            entry.requires_grad_()
        out = self.stage(entry)
        if self.stage.head is not None:
            out = self.stage.head(out, target) / MICRO
        self.waiting.append((entry, out))
        return None if self.is_last else out.detach()

    def back(self, grad: torch.Tensor | None) -> torch.Tensor | None:
        """The oldest micro-batch backward; what the stage before gets."""
        entry, out = self.waiting.pop(0)
        out.backward(grad)
        return None if self.is_first else entry.grad

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        xs, ys = x.chunk(MICRO), y.chunk(MICRO)
        hidden = torch.empty(xs[0].shape[0], TOKENS, CONFIG.dim)
        before, after, warm = self.pp - 1, self.pp + 1, min(PP - self.pp - 1, MICRO)

        def entered(micro: int, got: torch.Tensor) -> torch.Tensor:
            return xs[micro] if self.is_first else got

        for micro in range(warm):
            out = self.ahead(entered(micro, self.exchange(None, -1, hidden, before)), ys[micro])
            self.exchange(out, after, None, -1)
        got = self.exchange(None, -1, hidden, before) if warm < MICRO else None
        for micro in range(warm, MICRO):
            out = self.ahead(entered(micro, got), ys[micro])
            grad = self.back(self.exchange(out, after, hidden, after))
            got = self.exchange(grad, before, None if micro == MICRO - 1 else hidden, before)
        for _ in range(warm):
            self.exchange(self.back(self.exchange(None, -1, hidden, after)), before, None, -1)
        for parameter in self.stage.parameters():
            assert parameter.grad is not None
            dist.all_reduce(parameter.grad, dist.ReduceOp.AVG, group=self.dp_group)
        return adam(self.stage)


@gg.check(mesh={"dp": DP, "pp": PP, "tp": TP})
def step(mesh: Any) -> gg.Refinement:
    """All parameters after the step, as the whole model has them."""
    shape = (MICRO * DP, TOKENS)
    tokens = tuple(gg.tensor(*shape, dtype=torch.int64, high=CONFIG.vocab) for _ in range(2))
    part = {"dp": Shard(0)}
    return gg.Refinement(Whole(), Pipeline(mesh), tokens, in_relations=(part, part), grads=False)
