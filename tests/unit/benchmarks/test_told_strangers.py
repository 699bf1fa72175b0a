"""What is told of strangers' programs whose kinds were mended: the line of the bug or the one beside it, whoever reads what is wrong there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.strangers.__main__ import checked, judged
from benchmarks.strangers.program import PROGRAMS, programs
from graphguard.checks.project.configuration import Configuration
from graphguard.checks.running.worker_client import WorkerClient

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerClient]:
    with WorkerClient(Configuration(PROGRAMS)) as client:
        yield client


@pytest.mark.parametrize(
    "name",
    [
        # A gradient that nothing reads is no account where a step computes the wrong thing: it is the step's own, of the wrong operand.
        "key_norm_before_its_gradient_came",
        # Results before gradients, which the program hands out under names of its own.
        "negatives_gathered_with_positives",
    ],
)
def test_a_stranger_is_told_at_its_bug(name: str, worker: WorkerClient) -> None:
    (program,) = programs(name)
    row = judged(program, checked(program, program.buggy, worker), 0.0)
    assert row.broken
    assert row.rule
    assert row.away is not None
    assert row.away <= 1
