"""The time of a proof is the processor's: what else a machine does must not change a verdict."""

import time

import pytest

from graphguard.relations.terms.kernels import Exhausted, Universe

SECONDS = 0.1


def construct(universe: Universe) -> None:
    for _ in range(1000):
        universe.step()


def test_time_that_others_have_does_not_count() -> None:
    universe = Universe(seconds=SECONDS)
    time.sleep(3 * SECONDS)
    construct(universe)


def test_time_of_its_own_ends() -> None:
    universe = Universe(seconds=SECONDS)
    start = time.thread_time()
    while time.thread_time() < start + SECONDS:
        pass
    with pytest.raises(Exhausted, match="time is up"):
        construct(universe)
