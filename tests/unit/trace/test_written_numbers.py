"""Numbers in calls that PyTorch makes for an operator: they stand as they were written, not as they were rounded on the way."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import graphguard as gg
from graphguard.ir.written import written


@pytest.mark.parametrize("number", [1e-6, 1e-5, 0.1, 0.7, 2.5e-3, 1e4, 0.5, -3.0, 0.0])
def test_decimal_numbers(number: float) -> None:
    assert written(torch.tensor(number).item()) == number
    assert written(number) == number


@pytest.mark.parametrize("number", [1 / 3, torch.tensor(1 / 3).item(), float("inf"), 1e300, 0.1234567891])
def test_numbers_that_nobody_wrote(number: float) -> None:
    assert written(number) == number


def normalised(eps: float) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    return lambda x, weight: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


@pytest.mark.parametrize(
    ("eps", "verdict"), [(1e-6, gg.Verdict.REFINES), (1e-5, gg.Verdict.BROKEN), (1.0001e-6, gg.Verdict.BROKEN)]
)
def test_a_norm_written_out(eps: float, verdict: gg.Verdict) -> None:
    """PyTorch rounds the epsilon of a norm of float32 tensors to float32."""
    inputs = (gg.tensor(3, 4), gg.tensor(4))
    report = gg.verify(
        lambda x, weight: F.rms_norm(x, (4,), weight, 1e-6), lambda mesh: normalised(eps), inputs, mesh={"tp": 2}
    )
    assert report.verdict is verdict


def test_doubles_keep_their_numbers() -> None:
    inputs = (gg.tensor(3, dtype=torch.float64),)
    rounded = torch.tensor(0.1).item()
    report = gg.verify(
        lambda x: torch.ops.aten.mul.Scalar(x, 0.1),
        lambda mesh: lambda x: torch.ops.aten.mul.Scalar(x, rounded),
        inputs,
        mesh={"tp": 2},
    )
    assert report.verdict is gg.Verdict.BROKEN
