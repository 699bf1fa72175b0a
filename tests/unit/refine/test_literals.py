"""What literals in float32 stand for where a program computes in float32 alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import graphguard as gg
from graphguard.ir.written import computed

ROOT = math.sqrt(40)


@pytest.mark.parametrize(
    "number", [0.1, -0.3, 1e-5, 1e-12, 0.729, 1 / 3, 5 / 7, -1 / 12, ROOT, 1 / ROOT, -ROOT, 2.5, 7.0]
)
def test_short_numbers_are_read_as_they_were_written(number: float) -> None:
    assert computed(float(np.float32(number))) == pytest.approx(number, rel=1e-15)


@pytest.mark.parametrize("number", [math.pi, math.exp(-0.5), 0.12345678, 1 + 2**-23, float("inf")])
def test_others_are_what_float32_holds(number: float) -> None:
    assert computed(float(np.float32(number))) == float(np.float32(number))


def verdict(
    spec: Callable[..., Any], impl: Callable[..., Any], dtype: torch.dtype = torch.float32
) -> gg.Verdict | None:
    return gg.verify(
        spec, lambda _: impl, (gg.tensor(6, 4, dtype=dtype),), mesh={"dp": 2}, out_relations="replicate", grads=False
    ).verdict


def scale(number: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: x * torch.tensor(number)


@pytest.mark.parametrize("number", [0.1, 1 / 3, ROOT])
def test_a_factor_as_a_tensor_and_as_a_number(number: float) -> None:
    assert verdict(lambda x: x * number, scale(number)) is gg.Verdict.REFINES
    assert verdict(scale(number), lambda x: x * number) is gg.Verdict.REFINES
    assert verdict(lambda x: x * number, scale(number * 1.00001)) is gg.Verdict.BROKEN


def test_numbers_of_a_list() -> None:
    numbers = (0.1, 0.2, 0.3, 0.7)
    columns = lambda x: torch.stack([x[:, i] * number for i, number in enumerate(numbers)], 1)  # noqa: E731
    assert verdict(lambda x: x * torch.tensor(numbers), columns) is gg.Verdict.REFINES
    assert verdict(lambda x: x * torch.tensor(numbers[::-1]), columns) is gg.Verdict.BROKEN


def test_beside_complex_numbers_of_double_precision_a_literal_is_what_it_holds() -> None:
    """Their parts are float64, in which 0.1 and what float32 makes of it differ."""
    inputs = (gg.tensor(6, 4, dtype=torch.complex128), gg.tensor(6, 4))

    def run(factor: Any) -> Callable[..., Any]:
        return lambda z, x: (z * factor, x * 2)

    found = gg.verify(
        run(0.1), lambda _: run(torch.tensor(0.1)), inputs, mesh={"dp": 2}, out_relations="replicate", grads=False
    )
    assert found.verdict is gg.Verdict.BROKEN


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_beside_other_types_a_literal_is_what_it_holds(dtype: torch.dtype) -> None:
    """In float64 one has 0.1, the other 0.100000001; in bfloat16 rounding the factor first is another number."""
    assert verdict(lambda x: x * 0.1, lambda x: x * torch.tensor(0.1).to(dtype), dtype) is not gg.Verdict.REFINES
