"""Every rule against PyTorch: the same call on the same float64 numbers."""

from __future__ import annotations

import pytest
import torch

from graphguard.relations.numbers import Numbers
from graphguard.rules import RULES, find_rule
from graphguard.rules.basis import declared

from . import programs
from .bench import Bench, RuleMode, compare
from .closed import CLOSED
from .samples import SAMPLES, Make
from .written import WRITTEN

SEEDS = 3
#: Rules that only give the reason why an operator is not supported.
REFUSALS = {
    "aten.masked_select.default",
    "aten.nonzero_numpy.default",
    "aten.equal.default",
    "aten.allclose.default",
    "aten.is_nonzero.default",
    "aten._local_scalar_dense.default",
}
#: Uninitialised tensors equal nothing, not even themselves.
UNKNOWN = {op for op in RULES if "empty" in op}


@pytest.mark.parametrize(("op", "make"), SAMPLES, ids=[f"{i}-{op}" for i, (op, _) in enumerate(SAMPLES)])
def test_call(op: str, make: Make) -> None:
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        call = make()
        operands = [arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in call.args]
        compare(Bench(Numbers(opaque=CLOSED), call.known), op, operands, call.kwargs, call.results())


@pytest.mark.parametrize(("op", "make"), WRITTEN, ids=[f"{i}-{op}" for i, (op, _) in enumerate(WRITTEN)])
def test_written_out(op: str, make: Make) -> None:
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        call = make()
        bench = Bench(Numbers(opaque=CLOSED, draws=call.draws), call.known)
        compare(bench, op, call.args, call.kwargs, call.results())


@pytest.fixture(scope="module")
def exercised() -> tuple[set[str], dict[str, list[str]]]:
    """All programs under comparison: the operators seen, and what was wrong by program."""
    seen: set[str] = set()
    wrong: dict[str, list[str]] = {}
    for name in programs.PROGRAMS:
        with RuleMode(CLOSED) as mode:
            programs.run(name)
        seen |= mode.seen
        wrong[name] = mode.wrong
    return seen, wrong


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_program(name: str, exercised: tuple[set[str], dict[str, list[str]]]) -> None:
    assert exercised[1][name] == []


def test_every_rule_has_a_sample(exercised: tuple[set[str], dict[str, list[str]]]) -> None:
    found = {rule.name for op in exercised[0] if (rule := find_rule(op))}
    called = {op for op, _ in SAMPLES} | {op for op, _ in WRITTEN}
    called |= {
        op for op, rule in RULES.items() if rule.function.__module__ == declared.__name__
    }  # of which test_declared has a call each
    assert sorted(set(RULES) - found - called - REFUSALS - UNKNOWN) == []
