"""Tensors of which several elements share memory (``expand``, ``unfold``): what is written to one of them is there in all of them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

Program = Callable[[torch.Tensor], Any]
ROWS, WIDTH = 4, 3
TABLE = torch.arange(3.0).expand(ROWS, WIDTH)
WINDOWS = torch.arange(4.0).unfold(0, WIDTH, 1)


def row_of_expanded(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    whole = x.sum(0)
    rows = whole.expand(ROWS, WIDTH)
    rows.narrow(0, 1, 1).mul_(2)
    return rows * 1, whole * 1


def row_of_windows(x: torch.Tensor) -> torch.Tensor:
    windows = x[0].clone().unfold(0, 2, 1)
    windows[0].mul_(2)
    return windows * 1


def part_of_an_expanded_view(x: torch.Tensor) -> torch.Tensor:
    rows = x.sum(0).expand(ROWS, WIDTH)
    rows[1:3][1].view(-1)[:2].zero_()
    return rows * 1


def doubled(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x[0, :2] * 2, x[0, 2:]]).unfold(0, 2, 1) * 1


def doubled_apart(x: torch.Tensor) -> torch.Tensor:
    windows = x[0].unfold(0, 2, 1) * 1
    windows[0].mul_(2)
    return windows


def zeroed(x: torch.Tensor) -> torch.Tensor:
    return x.sum(0).expand(ROWS, WIDTH) * torch.tensor([0.0, 0.0, 1.0])


def zeroed_apart(x: torch.Tensor) -> torch.Tensor:
    rows = x.sum(0).expand(ROWS, WIDTH).clone()
    rows[1:3][1].view(-1)[:2].zero_()
    return rows


def twice(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return 2 * x.sum(0).expand(ROWS, WIDTH), 2 * x.sum(0)


def twice_apart(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rows = x.sum(0).expand(ROWS, WIDTH) * 1
    rows.narrow(0, 1, 1).mul_(2)
    return rows, x.sum(0)


PAIRS: dict[str, tuple[Program, Program, bool]] = {
    "a row of an expanded tensor": (twice, row_of_expanded, True),
    "a row of an expanded tensor as if it had memory of its own": (twice_apart, row_of_expanded, False),
    "a window": (doubled, row_of_windows, True),
    "a window as if it had memory of its own": (doubled_apart, row_of_windows, False),
    "a part of a row": (zeroed, part_of_an_expanded_view, True),
    "a part of a row as if it had memory of its own": (zeroed_apart, part_of_an_expanded_view, False),
}


@pytest.mark.parametrize("name", PAIRS)
def test_what_is_written(name: str) -> None:
    spec, impl, right = PAIRS[name]
    x = torch.randn(ROWS, WIDTH)
    numbers = zip(*(found if isinstance(found, tuple) else (found,) for found in (spec(x), impl(x))), strict=True)
    assert all(torch.allclose(*pair) for pair in numbers) is right
    found = gg.verify(spec, lambda _: impl, (gg.tensor(ROWS, WIDTH),), mesh={"dp": 2}, grads=False)
    assert found.verdict is (gg.Verdict.REFINES if right else gg.Verdict.BROKEN), found.diagnostics


class Scaled(nn.Module):
    def __init__(self, rows: int, *, persistent: bool = True) -> None:
        super().__init__()
        self.register_buffer("table", torch.arange(3.0).expand(rows, WIDTH), persistent=persistent)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.table


CLOSED: list[tuple[Any, Any, bool]] = [
    (lambda x: x * TABLE, lambda x: x * TABLE[: len(x)], True),
    (lambda x: x * TABLE, lambda x: x * TABLE[-len(x) :], True),
    (lambda x: x * TABLE, lambda x: x * (TABLE[: len(x)] + 1), False),
    (Scaled(ROWS), Scaled(ROWS // 2), True),
    (Scaled(ROWS, persistent=False), Scaled(ROWS // 2, persistent=False), True),
    (lambda x: x[:, :2] @ WINDOWS, lambda x: x[:, :2] @ WINDOWS, True),
    (lambda x: x[:, :2] @ WINDOWS, lambda x: x[:, :2] @ WINDOWS.flip(0), False),
]


@pytest.mark.parametrize(("spec", "impl", "right"), CLOSED)
def test_what_a_program_is_given(spec: Any, impl: Any, right: bool) -> None:
    rows = {"dp": Shard(0)}
    found = gg.verify(
        spec,
        lambda _: impl,
        (gg.tensor(ROWS, WIDTH),),
        mesh={"dp": 2},
        in_relations=rows,
        out_relations=rows,
        grads=False,
    )
    assert found.verdict is (gg.Verdict.REFINES if right else gg.Verdict.BROKEN), found.diagnostics
