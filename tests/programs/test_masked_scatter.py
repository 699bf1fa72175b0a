"""Images among the tokens of a text (``masked_scatter``), over shards of the text's positions, of the features, and of the batch."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg
from graphguard.rules.positions.masked_scatter import ENOUGH

TOKENS, WIDTH = 6, 4
Program = Callable[..., Any]
X, SAYS = gg.tensor(TOKENS, WIDTH), gg.tensor(TOKENS, dtype=torch.int64, low=0, high=2)


def gathered(x: torch.Tensor) -> torch.Tensor:
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x.contiguous())
    return torch.cat(parts)


def merged(text: torch.Tensor, says: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    return text.masked_scatter((says == 1)[:, None].expand_as(text), images)


def in_all(text: torch.Tensor, says: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    return merged(gathered(text), gathered(says), images).chunk(dist.get_world_size())[dist.get_rank()]


def looked_up(text: torch.Tensor, says: torch.Tensor, images: torch.Tensor, counted: bool = True) -> torch.Tensor:
    """Every rank looks its images up, behind those of the ranks before."""
    mask = says == 1
    before = gathered(mask.sum()[None])[: dist.get_rank()].sum() if counted else 0
    return torch.where(mask[:, None], images[(mask.long().cumsum(0) - 1 + before).clamp(min=0)], text)


def scattered(text: torch.Tensor, says: torch.Tensor, images: torch.Tensor, start: int | None = None) -> torch.Tensor:
    return merged(text, says, images if start is None else images[dist.get_rank() * start :])


def slopes(program: Program, reduce: bool = False) -> Program:
    def run(text: torch.Tensor, says: torch.Tensor, images: torch.Tensor, weights: torch.Tensor) -> Any:
        leaves = [each.detach().requires_grad_() for each in (text, images)]
        own, shared = torch.autograd.grad((program(leaves[0], says, leaves[1]) * weights).sum(), leaves)
        if reduce:
            dist.all_reduce(shared)
        return own, shared

    return run


ROWS = ({"tp": Shard(0)}, {"tp": Shard(0)}, {"tp": Replicate()})
COLUMNS = ({"tp": Shard(1)}, {"tp": Replicate()}, {"tp": Shard(1)})


def verdict(impl: Program, relations: Any, out: Any, images: int = TOKENS, spec: Program = merged) -> Any:
    inputs = (X, SAYS, gg.tensor(images, WIDTH), X)[: len(relations)]
    return gg.verify(
        spec,
        lambda _: impl,
        inputs,
        mesh={"tp": 2},
        in_relations=relations,
        out_relations=out,
        grads=False,
    )


RIGHT: dict[str, tuple[Program, Any, int]] = {
    "gathered": (in_all, ROWS, TOKENS),
    "gathered, few images": (in_all, ROWS, 3),
    "looked up": (looked_up, ROWS, TOKENS),
    "features": (scattered, COLUMNS, TOKENS),
    "features, few images": (scattered, COLUMNS, 3),
}
WRONG: dict[str, tuple[Program, Any, int]] = {
    "the first images on every rank": (scattered, ROWS, TOKENS),
    "the first images on every rank, few images": (scattered, ROWS, 4),
    "images by the rank": (lambda *inputs: scattered(*inputs, start=TOKENS // 2), ROWS, TOKENS),
    "looked up from the first": (lambda *inputs: looked_up(*inputs, counted=False), ROWS, TOKENS),
    "the images the other way round": (lambda t, s, i: merged(t, s, i.flip(0)), COLUMNS, 3),
    "the text where images belong": (lambda t, s, i: merged(t, 1 - s, i), COLUMNS, TOKENS),
}


@pytest.mark.parametrize("name", RIGHT)
def test_images_among_tokens(name: str) -> None:
    impl, relations, images = RIGHT[name]
    found = verdict(impl, relations, {"tp": Shard(0 if relations is ROWS else 1)}, images)
    assert found.verdict is gg.Verdict.REFINES, found.diagnostics
    assert ENOUGH in found.assumed


@pytest.mark.parametrize("name", WRONG)
def test_other_images(name: str) -> None:
    impl, relations, images = WRONG[name]
    found = verdict(impl, relations, {"tp": Shard(0 if relations is ROWS else 1)}, images)
    assert found.verdict is gg.Verdict.BROKEN, found.diagnostics


@pytest.mark.parametrize("reduce", [True, False])
def test_gradients_by_positions(reduce: bool) -> None:
    out = ({"tp": Shard(0)}, {"tp": Replicate()})
    relations = (*ROWS, {"tp": Shard(0)})
    found = verdict(slopes(looked_up, reduce), relations, out, spec=slopes(merged))
    assert found.verdict is (gg.Verdict.REFINES if reduce else gg.Verdict.BROKEN), found.diagnostics


@pytest.mark.parametrize("images", [TOKENS, 3])
def test_gradients_by_features(images: int) -> None:
    relations = (*COLUMNS, {"tp": Shard(1)})
    found = verdict(slopes(scattered), relations, {"tp": Shard(1)}, images, slopes(merged))
    assert found.verdict is gg.Verdict.REFINES, found.diagnostics
