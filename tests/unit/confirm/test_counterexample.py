"""Which of several inputs a person is shown: that on which one element differs plainly."""

from __future__ import annotations

import torch

from graphguard.confirm.counterexample import CLEAR, clarity
from graphguard.confirm.promises import Comparison, Slack
from graphguard.confirm.run.draws import DRAWS
from graphguard.confirm.trial import Failure
from graphguard.ir import Promise


def failure(expected: list[float], found: list[float], noise: float = 0.0) -> Failure:
    sides = (torch.tensor(side, dtype=torch.float64) for side in (expected, found))
    return Failure(Promise("out", None), [Comparison(*sides)], Slack(noise), DRAWS[0])


def test_a_difference_that_is_plain_and_can_be_seen() -> None:
    assert clarity(failure([48.0, 2.0], [48.0, 3.0])) > CLEAR


def test_one_element_differs_plainly_and_another_one_can_be_seen() -> None:
    """No element does both: what is shown would be one of two hardly different numbers, or two tiny ones."""
    assert clarity(failure([48.0, 1e-7], [48.00001, 3e-7])) == CLEAR


def test_a_plain_difference_that_rounding_explains() -> None:
    assert clarity(failure([48.0, 1e-7], [48.00001, 3e-7], noise=1e-3)) < CLEAR
