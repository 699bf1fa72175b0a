"""Integers that may be too large for their type: narrow ones wrap round, those of 32 bits are assumed not to."""

from typing import Any

import pytest
import torch
import torch.distributed as dist

import graphguard as gg

ASSUMED = "integers do not overflow int32"


def judged(spec: Any, impl: Any, dtype: torch.dtype) -> Any:
    data = (gg.tensor(4, 5, dtype=dtype),)
    return gg.verify(spec, lambda _: impl, data, mesh={"tp": 2}, out_relations="replicate")


def reduced(x: torch.Tensor) -> torch.Tensor:
    total = x.clone()
    dist.all_reduce(total)
    return total


@pytest.mark.parametrize(
    ("dtype", "spec", "impl"),
    [
        (torch.uint8, lambda x: (x + x).float(), lambda x: x.float() * 2),
        (torch.uint8, lambda x: (-x).float(), lambda x: -x.float()),
        (torch.uint8, lambda x: (x << 1).float(), lambda x: x.float() * 2),
        (torch.uint8, lambda x: x.float() * 2, lambda x: reduced(x).float()),
        (torch.int8, lambda x: x.abs().float(), lambda x: x.float().abs()),
        (torch.int16, lambda x: (x * x).float(), lambda x: x.float().square()),
        (torch.int64, lambda x: x, lambda x: x.to(torch.uint8).long()),
        (torch.float32, lambda x: x.trunc(), lambda x: x.to(torch.int8).float()),
        (torch.float64, lambda x: x * 1e10, lambda x: x * (torch.full((5,), 100000, dtype=torch.int32) * 100000)),
    ],
)  # fmt: skip
def test_what_wraps_round_is_not_proved(dtype: torch.dtype, spec: Any, impl: Any) -> None:
    assert judged(spec, impl, dtype).verdict is not gg.Verdict.REFINES


@pytest.mark.parametrize(
    ("dtype", "spec", "impl"),
    [
        (torch.int32, lambda x: x.long() * 2, lambda x: (x + x).long()),
        (torch.int32, lambda x: x.long() * 2, lambda x: reduced(x).long()),
        (torch.int32, lambda x: x.long() * 2, lambda x: (x << 1).long()),
        (torch.int64, lambda x: x, lambda x: x.int().long()),
    ],
)
def test_what_may_not_fit_in_32_bits_is_assumed_to(dtype: torch.dtype, spec: Any, impl: Any) -> None:
    found = judged(spec, impl, dtype)
    assert found.verdict is gg.Verdict.REFINES
    assert ASSUMED in found.assumed


@pytest.mark.parametrize(
    ("dtype", "spec", "impl"),
    [
        (torch.int64, lambda x: x * 2, lambda x: x + x),
        (torch.int16, lambda x: x.long().cumsum(0), lambda x: x.cumsum(0)),
        (torch.uint8, lambda x: (2 * x).float(), lambda x: (x + x).float()),
        (torch.float32, lambda x: (x > 0).sum(0), lambda x: (x > 0).int().sum(0)),
        (torch.float32, lambda x: x * (2 * torch.arange(5) + 1), lambda x: x * (torch.arange(5).int() * 2 + 1)),
    ],
)
def test_what_fits_is_proved_without_a_word(dtype: torch.dtype, spec: Any, impl: Any) -> None:
    found = judged(spec, impl, dtype)
    assert found.verdict is gg.Verdict.REFINES
    assert ASSUMED not in found.assumed
