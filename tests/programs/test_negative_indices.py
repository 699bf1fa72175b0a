"""Indices that are declared to reach below zero: ``table[i]`` counts those from the end, as PyTorch does."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import graphguard as gg

ROWS = 5
Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def verdict(spec: Function, impl: Function, low: int) -> gg.Verdict | None:
    inputs = (gg.tensor(ROWS, 3), gg.tensor(4, dtype=torch.int64, low=low, high=ROWS))
    report: Any = gg.verify(spec, lambda mesh: impl, inputs, mesh={"tp": 2}, out_relations="replicate", grads=False)
    return report.verdict  # type: ignore[no-any-return]


def read(w: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return w[i]


def before(w: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return w[i - 1]


FROM_THE_END: dict[str, tuple[Function, Function]] = {
    "by hand": (read, lambda w, i: w[torch.where(i < 0, i + ROWS, i)]),
    "by the remainder": (read, lambda w, i: F.embedding(i % ROWS, w)),
    "of two tables": (read, lambda w, i: F.embedding(i + ROWS, torch.cat([w, w]))),
    "columns": (lambda w, i: w.t()[:, i], lambda w, i: w[i % ROWS].t()),
    "of two dims": (lambda w, i: w[i, i % 3], lambda w, i: w[i % ROWS, i % 3]),
    "flat": (lambda w, i: w[:, 0].take(i), lambda w, i: w[i, 0]),
    "written": (
        lambda w, i: w.index_put((i,), torch.ones(4, 3)),
        lambda w, i: w.index_put((i % ROWS,), torch.ones(4, 3)),
    ),
    "added": (
        lambda w, i: w.index_put((i,), torch.ones(4, 3), accumulate=True),
        lambda w, i: w.index_add(0, i % ROWS, torch.ones(4, 3)),
    ),
}
COMPUTED: dict[str, tuple[Function, Function]] = {
    "the row before": (before, lambda w, i: w.roll(1, 0)[i]),
    "counted on": (before, lambda w, i: w[(i + ROWS - 1) % ROWS]),
    "turned round": (lambda w, i: w[~i], lambda w, i: w.flip(0)[i]),
}
WRONG: dict[str, tuple[Function, Function, int]] = {
    "one less": (read, lambda w, i: w[torch.where(i < 0, i + ROWS - 1, i)], -ROWS),
    "from the other end": (read, lambda w, i: w[i.abs() % ROWS], -ROWS),
    "the first row instead": (read, lambda w, i: w[i.clamp(min=0)], -ROWS),
    "the first before the first": (before, lambda w, i: w[(i - 1).clamp(min=0)], 0),
}


@pytest.mark.parametrize(("spec", "impl"), FROM_THE_END.values(), ids=FROM_THE_END)
def test_from_the_end(spec: Function, impl: Function) -> None:
    assert verdict(spec, impl, -ROWS) is gg.Verdict.REFINES


@pytest.mark.parametrize(("spec", "impl"), COMPUTED.values(), ids=COMPUTED)
def test_computed(spec: Function, impl: Function) -> None:
    assert verdict(spec, impl, 0) is gg.Verdict.REFINES


@pytest.mark.parametrize(("spec", "impl", "low"), WRONG.values(), ids=WRONG)
def test_wrong_rows(spec: Function, impl: Function, low: int) -> None:
    assert verdict(spec, impl, low) is gg.Verdict.BROKEN


def test_beyond_the_end_is_an_error() -> None:
    """PyTorch refuses an index below minus the number of rows, and so nothing is proved of it."""
    assert verdict(read, lambda w, i: w[i % ROWS], -ROWS - 1) is gg.Verdict.UNKNOWN
