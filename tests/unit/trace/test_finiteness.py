"""Conditions that only checks for NaN and infinity decide are known; no other is."""

from collections.abc import Callable

import pytest
import torch
from programs import record

from graphguard.trace.record.finiteness import ASSUMED
from graphguard.trace.source.errors import is_data_dependence


def taken(condition: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    """Which branch is recorded, for an unknown input."""
    seen: list[bool] = []

    def program(x: torch.Tensor) -> torch.Tensor:
        seen.append(bool(condition(x)))
        return x

    trace = record(program, [torch.ones(3)])
    assert ASSUMED in trace.assumed
    return seen[0]


def masked(x: torch.Tensor) -> torch.Tensor:
    return x.masked_fill(x > 0, float("-inf"))


def filled(x: torch.Tensor) -> torch.Tensor:
    """As DeepSpeed marks a norm that is none."""
    norm = torch.linalg.vector_norm(x).clone()
    norm.masked_fill_(norm.isnan().logical_or(norm.isinf()), torch.tensor(-1.0))
    return norm


def chosen(x: torch.Tensor) -> torch.Tensor:
    norm = torch.stack([x.norm(), x.norm()])
    bad = (~torch.isfinite(norm) | (norm < 0)).any()
    whole = torch.linalg.vector_norm(norm)
    return torch.where(bad, torch.full_like(whole, float("inf")), whole)


def weighed(x: torch.Tensor) -> torch.Tensor:
    norm = (x**2).sum() ** 0.5
    bad = norm.isnan().logical_or(norm.isinf())
    return bad * torch.tensor(-1.0) + bad.logical_not() * norm


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (lambda x: x.isnan().any(), False),
        (lambda x: x.sum().isinf(), False),
        (lambda x: torch.isfinite(x * 2).all(), True),
        (lambda x: torch.isfinite(x.amax()).logical_and(torch.isfinite(x.amin())).logical_not(), False),
        (lambda x: x.sum() == float("inf"), False),
        (lambda x: (x != x).any(), False),
        (lambda x: torch.logical_or(x.norm().isnan(), x.norm().isinf()), False),
        (lambda x: torch.log(x.exp().sum()).isnan(), False),
        (lambda x: filled(x) < 0, False),
        (lambda x: filled(x) >= 0, True),
        (lambda x: (~torch.isfinite(chosen(x)) | (chosen(x) < 0)).any(), False),
        (lambda x: (~torch.isfinite(weighed(x)) | (weighed(x) < 0)).any(), False),
    ],
)
def test_a_check_finds_nothing(condition: Callable[[torch.Tensor], torch.Tensor], expected: bool) -> None:
    assert taken(condition) is expected


@pytest.mark.parametrize(
    "condition",
    [
        lambda x: (x > 0).any(),
        lambda x: x.sum() < 0,
        lambda x: masked(x).isinf().any(),
        lambda x: masked(x).softmax(-1).isnan().any(),
        lambda x: torch.log((x > 0).float()).isinf().any(),
        lambda x: (x / 0).isinf().any(),
        lambda x: (x * torch.tensor([1.0, float("inf"), 2.0])).isnan().any(),
        lambda x: x.isnan().any() | (x > 0).any(),
        lambda x: torch.where(x > 0, x, float("nan")).isnan().any(),
        lambda x: x.clone().fill_(float("inf")).isinf().all(),
        lambda x: x.new_empty(3).copy_(masked(x)).isinf().all(),
        lambda x: (x == x.flip(0)).all(),
        lambda x: filled(x).neg() < 0,
        lambda x: torch.isfinite(x[:0]).any(),
        lambda x: (x.norm() - 1).abs() > 0,
    ],
)
def test_anything_else_stays_unknown(condition: Callable[[torch.Tensor], torch.Tensor]) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - PyTorch's own, of several classes
        taken(condition)
    assert is_data_dependence(caught.value), caught.value


def test_a_number_is_compared_beside_a_table_of_constants() -> None:
    """Looking at the table was recorded as the program's own calls, which were looked at in turn, without an end."""

    def program(x: torch.Tensor) -> torch.Tensor:
        scaled = x * torch.tensor([1.0, 2.0, 3.0])
        assert scaled.sum().item() < 5.0
        return scaled

    trace = record(program, [torch.ones(3)])
    assert trace.graph is not None
    assert any("scaled.sum().item() < 5.0" in line for line in trace.assumed)
