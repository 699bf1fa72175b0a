"""The likeliest tokens over a divided vocabulary: every rank sends its own k likeliest, of which all take the k likeliest."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

import graphguard as gg
from graphguard.rules.basis.merged_choices import NO_TIES

from .divided_vocabulary import verdict

K = 3
Chosen = tuple[torch.Tensor, ...]


def gathered(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x.contiguous())
    return torch.cat(parts, dim)


def merged(
    logits: torch.Tensor,
    k: int = K,
    sent: int = K,
    offset: int | None = None,
    largest: bool = True,
    backwards: bool = False,
) -> Chosen:
    values, places = torch.topk(logits, min(sent, logits.shape[-1]), largest=largest)
    places = places + dist.get_rank() * (logits.shape[-1] if offset is None else offset)
    values, places = gathered(values), gathered(places)
    values, at = torch.topk(values.flip(-1) if backwards else values, k, largest=largest)
    return values, places.gather(-1, at)


def likeliest(logits: torch.Tensor) -> Chosen:
    return torch.topk(logits, K)


@pytest.mark.parametrize(("extent", "ranks"), [(10, 2), (12, 3), (6, 3), (4, 2)])
def test_merged_choices(extent: int, ranks: int) -> None:
    """Of few columns a rank sends all."""
    found = verdict(likeliest, merged, extent, ranks)
    assert found.verdict is gg.Verdict.REFINES, found.diagnostics


RIGHT: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (likeliest, lambda x: merged(x, sent=K + 2)),
    (lambda x: torch.topk(x, K, largest=False), lambda x: merged(x, largest=False)),
    (lambda x: torch.topk(x, K)[0].softmax(-1), lambda x: merged(x)[0].softmax(-1)),
]
WRONG: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (likeliest, lambda x: merged(x, sent=K - 1)),
    (likeliest, lambda x: merged(x, offset=0)),
    (likeliest, lambda x: merged(x, offset=4)),
    (likeliest, lambda x: merged(x, backwards=True)),
    (lambda x: torch.topk(x, K)[0], lambda x: 2 * merged(x)[0]),
    (lambda x: torch.topk(x, K)[0], lambda x: merged(x, largest=False)[0]),
]


@pytest.mark.parametrize(("spec", "impl"), RIGHT)
def test_other_choices(spec: Callable[..., Any], impl: Callable[..., Any]) -> None:
    found = verdict(spec, impl)
    assert found.verdict is gg.Verdict.REFINES, found.diagnostics


def test_places_of_the_merged_rest_on_no_ties() -> None:
    """PyTorch may take another of equal elements from the ranks' than from the whole."""
    assert NO_TIES in verdict(likeliest, merged).assumed


def test_values_of_the_merged_rest_on_nothing() -> None:
    """They are the same, whichever of equal elements is taken."""
    found = verdict(lambda x: torch.topk(x, K)[0], lambda x: torch.topk(gathered(torch.topk(x, K)[0]), K)[0])
    assert found.verdict is gg.Verdict.REFINES
    assert NO_TIES not in found.assumed


@pytest.mark.parametrize(("spec", "impl"), WRONG)
def test_wrong_choices(spec: Callable[..., Any], impl: Callable[..., Any]) -> None:
    found = verdict(spec, impl)
    assert found.verdict is gg.Verdict.BROKEN, found.diagnostics
