"""What look-ups need of their indices: of inputs, of what is computed, of what nothing is known of."""

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import Shard

import graphguard as gg

Function = Callable[..., torch.Tensor]
ROWS = {"dp": Shard(0)}


def hot_rows(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return F.one_hot(index, 5).to(table.dtype) @ table


def beyond(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Every element is right by the numbers, but PyTorch refuses classes that are none of the three, or of the two."""
    first = F.one_hot(index, 3).to(table.dtype) @ table[:3]
    return first + F.one_hot(index - 3, 2).to(table.dtype) @ table[3:]


def within(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """The same with classes that are moved where they would lie outside."""
    low = index < 3
    first = F.one_hot(torch.where(low, index, 0), 3).to(table.dtype) * low[:, None]
    second = F.one_hot(torch.where(low, 0, index - 3), 2).to(table.dtype) * ~low[:, None]
    return first @ table[:3] + second @ table[3:]


@pytest.mark.parametrize(("impl", "verdict"), [(within, gg.Verdict.REFINES), (beyond, gg.Verdict.UNKNOWN)])
def test_classes_outside_are_errors(impl: Function, verdict: gg.Verdict) -> None:
    report = gg.verify(
        hot_rows,
        lambda mesh: impl,
        (gg.tensor(5, 2), gg.tensor(4, dtype=torch.int64, low=0, high=5)),
        mesh={"dp": 2},
        in_relations=({}, ROWS),
        out_relations=ROWS,
    )
    assert report.verdict is verdict, report.diagnostics


def test_indices_that_are_no_input_are_not_named() -> None:
    def drawn(table: torch.Tensor) -> torch.Tensor:
        return table[torch.randint(0, 9, (3,))]

    report = gg.verify(drawn, lambda mesh: drawn, (gg.tensor(9, 2),), mesh={"dp": 2})
    assert "indices that the specification computes lie inside the tables it looks them up in" in report.assumed
    assert not any("drawn as" in text for text in report.assumed)


def filled_in(x: torch.Tensor, features: torch.Tensor, marks: torch.Tensor) -> torch.Tensor:
    """The features of an image in the places that are marked, in order; a count less one is none of the table where nothing was counted yet."""
    held = marks > 0
    return torch.where(held[:, None], features[(held.long().cumsum(0) - 1).clamp(min=0)], x)


def filled_in_parts(offset: bool) -> Function:
    """The same for a rank's part of the tokens, of all features."""

    def run(x: torch.Tensor, features: torch.Tensor, marks: torch.Tensor) -> torch.Tensor:
        rank, size = dist.get_rank(), x.shape[0]
        held = marks[rank * size : (rank + 1) * size] > 0
        place = held.long().cumsum(0) - 1
        if offset:
            place = place + (marks[: rank * size] > 0).long().sum()
        return torch.where(held[:, None], features[place.clamp(min=0)], x)

    return run


@pytest.mark.parametrize(("offset", "verdict"), [(True, gg.Verdict.REFINES), (False, gg.Verdict.BROKEN)])
def test_a_count_less_one_that_is_held_at_zero(offset: bool, verdict: gg.Verdict) -> None:
    report = gg.verify(
        filled_in,
        lambda mesh: filled_in_parts(offset),
        (gg.tensor(8, 3), gg.tensor(8, 3), gg.tensor(8)),
        mesh={"dp": 2},
        in_relations=(ROWS, {}, {}),
        out_relations=ROWS,
    )
    assert report.verdict is verdict, report.diagnostics
