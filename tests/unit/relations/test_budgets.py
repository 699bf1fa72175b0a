"""What a proof may cost is counted in steps: neither a slow machine nor what else it does changes a verdict."""

import time

import pytest

from graphguard.ir.fuel import KERNEL, Fuel, burn, burnt
from graphguard.relations.terms.kernels import Exhausted, Universe


def construct(universe: Universe, times: int) -> None:
    for _ in range(times):
        universe.step()


def test_time_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    universe = Universe(fuel=Fuel("a proof", 100 * KERNEL))
    for name in ("thread_time", "process_time", "monotonic", "perf_counter"):
        monkeypatch.setattr(time, name, lambda: 1e9)
    construct(universe, 99)


def test_steps_do() -> None:
    universe = Universe(fuel=Fuel("a proof", 100 * KERNEL))
    with pytest.raises(Exhausted, match=r"^a proof was given up after 300 steps$"):
        construct(universe, 100)


def test_a_budget_is_part_of_those_that_were_begun_before() -> None:
    outer, before = Fuel("all", 10), burnt()
    inner, larger = outer.part("some", 4), outer.part("more", 20)
    assert (inner.left, larger.left) == (4, 10)
    burn(4)
    assert inner.spent
    assert (outer.left, larger.left, outer.spent) == (6, 6, False)
    burn(6)
    assert outer.spent
    assert (larger.spent, outer.left, burnt() - before) == (True, 0, 10)
