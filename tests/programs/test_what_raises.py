"""Conditions without which a program raises are recorded as where it goes on, which the verdict says; others that the data decides are told."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.distributed.tensor import Shard

import graphguard as gg

from . import raising

ROWS, WIDTH = 6, raising.WIDTH
DP = {"dp": Shard(0)}


HOLD: dict[Callable[[torch.Tensor], None], str] = {
    raising.asserted: "(x > -5).all()",
    raising.asserted_beside_another: "torch.all(x > -5)",
    raising.asserted_of_the_largest: "x.max() < 5",
    raising.asserted_of_a_number: "x.argmax(1).max().item() < WIDTH",
    raising.asserted_of_half: "(x > 0).sum().item() / 2 >= 1",
    raising.asserted_equal_to_a_number: "(x > 5).sum().item() == 0",
    raising.asserted_equal_everywhere: "torch.equal(x, x + 0)",
    raising.asserted_close: "torch.allclose(x, x + 1e-12)",
    raising.raised_unless_equal: "x.equal(x.clone())",
    raising.raised_unless: "(x > -5).all().item()",
    raising.raised_by_the_last: "(x > -5).all()",
    raising.raised_by_torch: "(x > -5).all()",
}
DO_NOT_HOLD = {
    raising.raised: "(x < -5).any()",
    raising.raised_of_a_sum: "x.sum().item() * -1e-6 > 0.5",
    raising.raised_where_one_of_two: "(x < -5).any()",
}


def verdict(check: Callable[[torch.Tensor], Any], factor: int = 1) -> Any:
    def doubled(x: torch.Tensor) -> torch.Tensor:
        check(x)
        return 2 * x

    impl = lambda _: lambda x: factor * doubled(x)  # noqa: E731
    return gg.verify(doubled, impl, (gg.tensor(ROWS, WIDTH),), mesh={"dp": 2}, in_relations=DP, grads=False)


@pytest.mark.parametrize("check", [*HOLD, *DO_NOT_HOLD], ids=lambda check: check.__name__)
def test_where_the_program_goes_on_it_is_proved_and_that_is_said(check: Callable[[torch.Tensor], None]) -> None:
    found = verdict(check)
    assert found.verdict is gg.Verdict.REFINES, found.diagnostics
    held = (
        f'"{HOLD[check]}" in {check.__name__} holds'
        if check in HOLD
        else f'"{DO_NOT_HOLD[check]}" in {check.__name__} does not hold'
    )
    assert [one for one in found.assumed if one.startswith(held)], found.assumed


@pytest.mark.parametrize(
    "check",
    [
        raising.asserted,
        raising.raised,
        raising.asserted_of_a_number,
        raising.asserted_of_half,
        raising.asserted_close,
        raising.raised_of_a_sum,
    ],
)
def test_what_is_wrong_behind_it_is_found(check: Callable[[torch.Tensor], None]) -> None:
    assert verdict(check, factor=3).verdict is gg.Verdict.BROKEN


def test_numbers_that_raise_refute_nothing() -> None:
    def never(x: torch.Tensor) -> None:
        assert (x > 1e6).all()

    found = verdict(never, factor=3)
    assert found.verdict is gg.Verdict.UNKNOWN
    assert "no draw is as assumed" in found.diagnostics[0].message


@pytest.mark.parametrize(
    "check",
    [
        raising.caught,
        raising.branched,
        raising.branched_on_equality,
        raising.raised_where_both,
    ],
    ids=lambda check: check.__name__,
)
def test_other_questions_about_the_data_are_told(check: Callable[[torch.Tensor], Any]) -> None:
    found = verdict(check)
    assert found.verdict is None
    assert found.diagnostics[0].message.startswith("the program needs a number that depends on its inputs")


def test_an_assertion_that_pytest_writes_out_is_one() -> None:
    def largest(x: torch.Tensor) -> None:
        assert x.max() < 5

    found = verdict(largest)
    assert found.verdict is gg.Verdict.REFINES, found.diagnostics
    assert [one for one in found.assumed if one.startswith('"x.max() < 5" in ')], found.assumed


def test_tensors_on_another_device_are_told_once_though_every_rank_has_its_own() -> None:
    def on_the_device(x: torch.Tensor) -> torch.Tensor:
        there, here = (torch.ones(WIDTH, device=device) for device in (torch.cuda.current_device(), "cpu"))
        return x * (there + here)

    found = gg.verify(
        lambda x: x * 1, lambda _: on_the_device, (gg.tensor(ROWS, WIDTH),), mesh={"dp": 2}, in_relations=DP
    )
    (finding,) = found.diagnostics
    assert finding.rule == "trace-error"
    assert "on the same device" in finding.message


X = gg.tensor(ROWS, WIDTH)
CHECKED: dict[str, tuple[Callable[..., torch.Tensor], tuple[Any, ...], str]] = {
    "a loss": (
        lambda x, y, z: F.gaussian_nll_loss(x, y, z, reduction="none"),
        (X, X, X),
        '"torch.any(var < 0)" in gaussian_nll_loss does not hold',
    ),
    "a policy": (
        lambda x, action: torch.distributions.Categorical(logits=x).log_prob(action),
        (X, gg.tensor(ROWS, dtype=torch.int64, low=0, high=WIDTH)),
        '"torch._is_all_true(valid)" in Distribution.__init__ holds',
    ),
    "a latent": (
        lambda x, y: torch.distributions.kl_divergence(
            torch.distributions.Normal(x, y.exp()), torch.distributions.Normal(0.0, 1.0)
        ),
        (X, X),
        '"torch._is_all_true(valid)" in Distribution.__init__ holds',
    ),
}


@pytest.mark.parametrize("name", CHECKED)
@pytest.mark.parametrize("factor", [1, 2])
def test_what_pytorch_checks_of_its_arguments(name: str, factor: int) -> None:
    spec, inputs, assumed = CHECKED[name]
    impl = lambda _: lambda *tensors: factor * spec(*tensors)  # noqa: E731
    found = gg.verify(spec, impl, inputs, mesh={"dp": 2}, in_relations=DP, out_relations=DP, grads=False)
    assert found.verdict is (gg.Verdict.REFINES if factor == 1 else gg.Verdict.BROKEN), found.diagnostics
    if factor == 1:
        assert [one for one in found.assumed if one.startswith(assumed)], found.assumed
