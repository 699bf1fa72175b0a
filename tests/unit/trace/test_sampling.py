"""What ranks read of a dataset beside what one rank alone reads: what is right, what is recorded again, and what is told."""

import time
from dataclasses import replace
from typing import Any

import pytest

from graphguard.ir import CheckRef, Span
from graphguard.trace.process.limits import Limits
from graphguard.trace.programs.job import Job, Recorded
from graphguard.trace.programs.sampling import replanned, sampling_told, wrong_samples
from graphguard.trace.scripts.program import Run
from graphguard.trace.scripts.samples import Reading
from graphguard.trace.scripts.script import Item, Place, Script

MADE = Span("train.py", 7, 10, 7, 40)


def batches(*rows: list[int], dataset: str = "Toy", trains: bool = True) -> tuple[Reading, ...]:
    """What a loader handed out, by the indices of the items."""
    return tuple(
        Reading("0", f"batch {number}", tuple(Item(dataset, str(index)) for index in row), trains, MADE, None)
        for number, row in enumerate(rows)
    )


def recorded(*rows: list[int], replicas: int = 0, **keywords: Any) -> Recorded:
    return Recorded(None, None, (), run=Run(batches(*rows, **keywords), replicas=replicas))


def job(**changes: Any) -> Job:
    script = replace(Script("train.py", "."), **changes)
    return Job(
        lambda _: None,
        {"ranks": 2},
        CheckRef("train.py", "train.py", MADE),
        ".",
        Limits(),
        time.monotonic(),
        script=script,
    )


def messages(alone: Recorded, *ranks: Recorded, **changes: Any) -> list[str]:
    found = wrong_samples(job(**changes), alone, ranks)
    assert all(trouble.span == MADE for trouble in found)
    return [trouble.message for trouble in found]


def test_ranks_that_share_what_one_reads() -> None:
    alone, ranks = recorded([0, 1, 2, 3]), (recorded([0, 2], replicas=2), recorded([1, 3], replicas=2))
    assert messages(alone, *ranks) == []
    again = replanned(job(), alone, ranks)
    assert again is not None
    assert again.script is not None
    assert (again.script.parts, again.script.merged) == (True, 1)
    assert replanned(again, alone, ranks) is None


def test_ranks_that_read_as_much_as_one_each() -> None:
    alone, ranks = recorded([0, 1]), (recorded([0, 2], replicas=2), recorded([1, 3], replicas=2))
    again = replanned(job(), alone, ranks)
    assert again is not None
    assert again.script is not None
    assert again.script.merged == 2
    whole = recorded([0, 1, 2, 3])
    assert replanned(again, whole, ranks) is None
    assert wrong_samples(again, whole, ranks) == []
    assert "one rank alone reads 2 batches at once, as all ranks together do" in sampling_told(again, whole, ranks)[0]


def test_replicas_that_read_the_same() -> None:
    (message,) = messages(recorded([0, 1]), recorded([0, 1], replicas=2), recorded([0, 1], replicas=2))
    assert message.startswith("rank 0 and rank 1 read the same samples: 0, 1 of Toy")
    assert "DistributedSampler" in message


def test_ranks_of_one_model_read_the_same() -> None:
    alone, ranks = recorded([0, 1]), (recorded([0, 1]), recorded([0, 1]))
    assert messages(alone, *ranks) == []
    assert replanned(job(), alone, ranks) is None
    assert "all ranks read the same samples" in sampling_told(job(), alone, ranks)[0]


def test_a_sample_that_two_ranks_read() -> None:
    (message,) = messages(recorded([0, 1, 2, 3]), recorded([0, 1], replicas=2), recorded([1, 2], replicas=2))
    assert message.startswith("sample 1 of Toy is read by rank 0 and rank 1; 3 of Toy by none")


def test_a_sample_that_nobody_reads() -> None:
    (message,) = messages(recorded([0, 1, 2, 3]), recorded([0, 1], replicas=2), recorded([2, 5], replicas=2), merged=2)
    assert message.startswith("the ranks read 5 of Toy, and one rank alone 3 of Toy instead")


def test_samplers_that_shuffle_stand_for_each_other() -> None:
    alone, ranks = recorded([9, 4, 7, 2]), (recorded([3, 1], replicas=2), recorded([8, 0], replicas=2))
    assert messages(alone, *ranks) == []
    again = replanned(job(parts=True), alone, ranks)
    assert again is not None
    assert again.script is not None
    assert again.script.places == {
        0: {Item("Toy", "3"): Place("batch 0", 0), Item("Toy", "1"): Place("batch 0", 1)},
        1: {Item("Toy", "8"): Place("batch 0", 2), Item("Toy", "0"): Place("batch 0", 3)},
    }
    assert any("chance" in line for line in sampling_told(again, alone, ranks)[0])


def test_as_many_on_one_rank_as_asked_for() -> None:
    asked = {"arguments": (), "reference": ("--batch-size", "3")}
    (message,) = messages(
        recorded([0, 1, 2]), recorded([0, 2, 4], replicas=2), recorded([1, 3, 5], replicas=2), **asked
    )
    assert message.startswith("with --reference-args one rank alone reads 3 samples for a step, and the ranks 6")


def test_a_share_that_all_ranks_read() -> None:
    (message,) = messages(recorded([0, 1, 2, 3]), recorded([0, 1]), recorded([0, 1]))
    assert message.startswith("rank 0 and rank 1 read the same samples: 0, 1 of Toy; 2, 3 of Toy by none")


def test_samples_that_unequal_batches_leave_out() -> None:
    (message,) = messages(recorded([0, 1, 2, 3]), recorded([0, 2]), recorded([1]))
    assert message.startswith("no rank reads 3 of Toy, which one rank alone reads")


def test_ranks_that_read_unequally_much() -> None:
    (message,) = messages(recorded([0, 1, 2, 3]), recorded([0, 2, 4], replicas=2), recorded([1, 3], replicas=2))
    assert message.startswith("the ranks read 5 samples for a step, and one rank alone 4")
    assert "found: 3, 2 samples on the ranks in turn" in message


def test_what_is_only_evaluated_does_not_count() -> None:
    alone, rank = recorded([0, 1], trains=False), recorded([0, 1], replicas=2, trains=False)
    assert messages(alone, rank, rank) == []


@pytest.mark.parametrize("again", [{"dp": 1, "tp": 2}])
def test_a_mesh_that_the_script_makes(again: dict[str, int]) -> None:
    ranks = [Recorded(None, None, (), again=again), recorded([0])]
    found = replanned(job(), recorded([0]), ranks)
    assert found is not None
    assert found.script is not None
    assert (found.mesh, found.script.mesh) == (again, True)
