"""Samplers over a divided vocabulary, which compare and choose by probabilities that no rank has divided by their sum."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

from .collectives import gathered, reduced

BATCH, VOCABULARY = 3, 8
Sampler = Callable[..., torch.Tensor]


def unscaled(logits: torch.Tensor, own: bool = False) -> torch.Tensor:
    """Probabilities but for their sum; over each rank's own largest they are scaled differently."""
    largest = logits.amax(-1, keepdim=True)
    return (logits - (largest if own else reduced(largest, dist.ReduceOp.MAX))).exp()


def likely(logits: torch.Tensor) -> torch.Tensor:
    """min-p: what has less than a tenth of the largest probability is left out."""
    p = logits.softmax(-1)
    return torch.where(p < 0.1 * p.amax(-1, keepdim=True), 0.0, p)


def likely_on_ranks(logits: torch.Tensor, own: bool = False, bound: float = 0.1) -> torch.Tensor:
    p = unscaled(logits)
    return torch.where(unscaled(logits, own) < bound, 0.0, p / reduced(p.sum(-1, keepdim=True)))


def over_noise(logits: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """A sample, the noise being exponential."""
    return (logits.softmax(-1) / noise).argmax(-1)


def over_noise_on_ranks(logits: torch.Tensor, noise: torch.Tensor, own: bool = False) -> torch.Tensor:
    start = dist.get_rank() * logits.shape[1]
    p = unscaled(logits, own) / noise[:, start : start + logits.shape[1]]
    values, tokens = p.max(-1)
    return gathered(tokens + start).gather(0, gathered(values).argmax(0, keepdim=True))[0]


def confidence(logits: torch.Tensor) -> torch.Tensor:
    return logits.softmax(-1).amax(-1)


def confidence_on_ranks(logits: torch.Tensor, largest: bool = True) -> torch.Tensor:
    p = unscaled(logits)
    return reduced(p.amax(-1), dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM) / reduced(p.sum(-1))


def verdict(spec: Sampler, impl: Sampler, out: Any, noise: bool = False) -> gg.Verdict | None:
    return gg.verify(
        spec,
        lambda mesh: impl,
        (gg.tensor(BATCH, VOCABULARY),) * (2 if noise else 1),
        mesh={"tp": 2},
        in_relations=({"tp": Shard(1)}, {"tp": Replicate()})[: 2 if noise else 1],
        out_relations=out,
        grads=False,
    ).verdict


def test_samplers() -> None:
    assert verdict(likely, likely_on_ranks, {"tp": Shard(1)}) is gg.Verdict.REFINES
    assert verdict(over_noise, over_noise_on_ranks, "replicate", noise=True) is gg.Verdict.REFINES
    assert verdict(confidence, confidence_on_ranks, "replicate") is gg.Verdict.REFINES


@pytest.mark.parametrize(
    ("spec", "impl", "out", "noise"),
    [
        (likely, lambda x: likely_on_ranks(x, own=True), {"tp": Shard(1)}, False),
        (likely, lambda x: likely_on_ranks(x, bound=0.2), {"tp": Shard(1)}, False),
        (over_noise, lambda x, e: over_noise_on_ranks(x, e, own=True), "replicate", True),
        (confidence, lambda x: confidence_on_ranks(x, largest=False), "replicate", False),
    ],
)
def test_wrong_samplers(spec: Sampler, impl: Sampler, out: Any, noise: bool) -> None:
    assert verdict(spec, impl, out, noise) is gg.Verdict.BROKEN
