"""The elements of a sorted line are the same numbers whoever sorted it, and from which end; where they stood is not said where some are equal."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.distributed.tensor import Shard

import graphguard as gg

Program = Callable[[torch.Tensor], Any]


def verdict(spec: Program, impl: Program) -> gg.Verdict | None:
    rows = {"dp": Shard(0)}
    report = gg.verify(
        spec,
        lambda mesh: impl,
        (gg.tensor(4, 5),),
        mesh={"dp": 2},
        in_relations=rows,
        out_relations=rows,
        grads=False,
    )
    return report.verdict


def falling(x: torch.Tensor) -> torch.Tensor:
    return x.sort(descending=True).values


def best(x: torch.Tensor) -> torch.Tensor:
    return x.topk(2).values


RIGHT: dict[str, tuple[Program, Program]] = {
    "the first of the sorted": (best, lambda x: falling(x)[:, :2]),
    "turned round": (falling, lambda x: -((-x).sort().values)),
    "backwards": (falling, lambda x: x.sort().values.flip(1)),
    "stable": (falling, lambda x: x.sort(stable=True).values.flip(1)),
    "the least": (lambda x: x.topk(2, largest=False).values, lambda x: -((-x).topk(2).values)),
    "the third": (lambda x: x.topk(3).values[:, 2], lambda x: x.sort().values[:, 2]),
    "more than needed": (best, lambda x: x.topk(4).values[:, :2]),
    "of a multiple": (lambda x: best(2 * x), lambda x: 2 * x.sort().values.flip(1)[:, :2]),
    "of a difference": (lambda x: best(x - x.flip(1)), lambda x: -((x.flip(1) - x).sort().values[:, :2])),
    "of columns": (lambda x: x.t().sort(0).values.t(), lambda x: falling(x).flip(1)),
}
WRONG: dict[str, tuple[Program, Program]] = {
    "the other end": (best, lambda x: x.sort().values[:, :2]),
    "the negative": (falling, lambda x: (-x).sort().values),
    "the wrong way": (falling, lambda x: -(x.sort().values)),
    "not the first": (best, lambda x: falling(x)[:, 1:3]),
    "another order": (best, lambda x: best(x).flip(1)),
    "of what was cut": (best, lambda x: falling(x[:, :4])[:, :2]),
    "of squares": (lambda x: best(x * x), lambda x: best(x) ** 2),
}


@pytest.mark.parametrize(("spec", "impl"), RIGHT.values(), ids=RIGHT)
def test_sorted(spec: Program, impl: Program) -> None:
    assert verdict(spec, impl) is gg.Verdict.REFINES


@pytest.mark.parametrize(("spec", "impl"), WRONG.values(), ids=WRONG)
def test_wrongly_sorted(spec: Program, impl: Program) -> None:
    assert verdict(spec, impl) is gg.Verdict.BROKEN


def test_places_are_not_taken_for_others() -> None:
    """Of equal elements PyTorch does not say which ``topk`` takes, so its places are not those of a sort."""
    assert (
        verdict(lambda x: x.topk(2).indices, lambda x: x.sort(descending=True).indices[:, :2]) is not gg.Verdict.REFINES
    )
