"""Pinned memory is memory: what is made in it is there, and what is pinned later is a copy.  PyTorch itself pins none without a device."""

from collections.abc import Callable

import pytest
import torch
from programs import record, run

import graphguard as gg

X = torch.tensor([2.0, 3.0, 4.0])
MADE: list[Callable[[], torch.Tensor]] = [
    lambda: torch.tensor([1.0, 1.0, 1.0], pin_memory=True),
    lambda: torch.zeros(3, pin_memory=True).add_(1),
    lambda: torch.empty(3, pin_memory=True).fill_(1),
    lambda: torch.full((3,), 1.0, pin_memory=True),
    lambda: torch.arange(3.0, pin_memory=True).clamp_(1, 1),
    lambda: torch.zeros(3).new_ones(3, pin_memory=True),
    lambda: torch.ones_like(torch.zeros(3), pin_memory=True),
    lambda: torch.empty_strided((3,), (1,), pin_memory=True).fill_(1),
    lambda: torch.ones(3).pin_memory(),
]


def recorded(program: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    trace = record(program, [X])
    assert trace.graph is not None, trace.troubles
    return run(trace.graph, {"in0": X})["out[0]"]


@pytest.mark.parametrize("make", MADE)
def test_what_is_made_in_pinned_memory_is_there(make: Callable[[], torch.Tensor]) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        made = make()
        assert made.is_pinned()
        assert made[1:].is_pinned()
        assert not x.is_pinned()
        return x + made

    assert recorded(program).tolist() == [3.0, 4.0, 5.0]


def test_pinning_copies_what_is_not_pinned() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x.pin_memory().add_(10)
        pinned = x.pin_memory()
        pinned.pin_memory().mul_(2)
        return x + 100 * pinned

    assert recorded(program).tolist() == [402.0, 603.0, 804.0]


def test_a_gradient_goes_through_pinning() -> None:
    trace = record(lambda x: x.pin_memory() * 3, [X], backward=True)
    assert trace.graph is not None, trace.troubles
    assert run(trace.graph, {"in0": X})["grad[0]"].tolist() == [3.0, 3.0, 3.0]


def test_pinned_memory_that_goes_to_a_device() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.cuda() + torch.tensor([1.0, 2.0, 3.0], device="cpu", pin_memory=True).cuda(non_blocking=True)

    report = gg.verify(program, lambda _: lambda x: x + torch.arange(1.0, 4.0).cuda(), (X,), mesh={"tp": 2})
    assert report.verdict is gg.Verdict.REFINES, report.diagnostics


def test_what_lies_on_a_device_is_not_pinned() -> None:
    report = gg.verify(lambda x: x.cuda().pin_memory(), lambda _: lambda x: x, (X,), mesh={"tp": 2})
    assert [one.code for one in report.diagnostics] == ["trace-error"]
    assert "cannot pin" in report.diagnostics[0].message
