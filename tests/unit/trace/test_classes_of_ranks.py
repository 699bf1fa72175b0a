"""A few ranks are recorded, and the others foretold: as they would have been recorded, or they are recorded as well."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spoiled_checks import NAMES, ODD, RANKS, SPOILS

from graphguard.checks.project.configuration import Configuration
from graphguard.checks.running.worker_client import WorkerClient
from graphguard.ir import Capture, capture_from_json
from graphguard.ir.ranks import some_recorded

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerClient]:
    client = WorkerClient(Configuration(HERE, timeout=300.0), lambda _: None)
    yield client
    client.close()


def captured(
    worker: WorkerClient, name: str, ranks: int | None, mesh: dict[str, int] | None = None, file: Path | None = None
) -> Capture:
    path = file or HERE / "spoiled_checks.py"
    params: dict[str, Any] = {
        "file": str(path),
        "name": NAMES.get(name, name),
        "mesh": mesh or {"tp": RANKS},
        "root": str(path.parent),
    }
    answer = worker.call("capture", {**params, "overlay": {}, "cache": False, "timeout": 300.0, "ranks": ranks})
    return capture_from_json(answer["capture"])


def recorded_of(capture: Capture) -> int:
    """How many ranks were recorded."""
    told = [line for line in capture.assumed if "ranks recorded" in line]
    if not told:
        return len(capture.ranks)
    (line,) = told
    count = int(line.split()[0])
    assert line == some_recorded(count, len(capture.ranks))
    return count


def assert_as_all(worker: WorkerClient, name: str, mesh: dict[str, int] | None = None, file: Path | None = None) -> int:
    """Every graph is the one that recording all ranks gives; returns how many were recorded."""
    some, every = (captured(worker, name, ranks, mesh, file) for ranks in (16, None))
    assert every.ranks
    assert [rank for rank, (one, other) in enumerate(zip(some.ranks, every.ranks, strict=True)) if one != other] == []
    assert (some.spec, some.leaves, some.promises) == (every.spec, every.leaves, every.promises)
    assert [trouble.message for trouble in some.troubles] == [trouble.message for trouble in every.troubles]
    assert not any("ranks recorded" in line for line in every.assumed)
    return recorded_of(some)


@pytest.mark.slow  # all ranks are recorded as well
@pytest.mark.parametrize("name", SPOILS)
def test_ranks_that_differ_are_recorded(worker: WorkerClient, name: str) -> None:
    assert assert_as_all(worker, name) <= SPOILS[name][1]


@pytest.mark.slow  # all ranks are recorded as well
@pytest.mark.parametrize("short", [1, 5, 4])
def test_uneven_shards(worker: WorkerClient, short: int) -> None:
    assert assert_as_all(worker, f"short by {short}") < RANKS


def test_one_rank_of_many_is_found(worker: WorkerClient) -> None:
    capture = captured(worker, "one rank doubles", 16)
    doubling = [
        rank
        for rank, graph in enumerate(capture.ranks)
        if any(node.args[1:] == (2,) for node in graph.nodes if "mul" in node.op)
    ]
    assert doubling == [ODD]
    assert recorded_of(capture) < RANKS


def test_a_table_that_is_a_tensor(worker: WorkerClient) -> None:
    """No comparison shows which rank reads another number of it."""
    assert recorded_of(captured(worker, "a table that is a tensor", 16)) == RANKS


def test_ranks_that_are_alike(worker: WorkerClient) -> None:
    assert assert_as_all(worker, "alike") == 5


def test_few_ranks_are_all_recorded(worker: WorkerClient) -> None:
    assert recorded_of(captured(worker, "alike", 4, {"tp": 4})) == 4


@pytest.mark.slow  # all ranks are recorded as well
def test_a_check_that_fails_says_so_as_ever(worker: WorkerClient) -> None:
    some, every = (captured(worker, "failing", ranks) for ranks in (16, None))
    assert [(one.message, one.rank) for one in some.troubles] == [(one.message, one.rank) for one in every.troubles]
    assert "not on this rank" in some.troubles[0].message


@pytest.mark.slow  # all ranks are recorded as well
@pytest.mark.parametrize(
    ("name", "mesh", "most"),
    [
        ("mlp", {"tp": 24}, 5),
        ("llama", {"tp": 20}, 5),
        ("moe", {"ep": 20}, 5),
        ("ring", {"cp": 18}, 5),
        ("data_parallel", {"dp": 32}, 5),
        ("sharded_and_parallel", {"dp": 8, "tp": 4}, 16),
    ],
)
def test_programs(worker: WorkerClient, name: str, mesh: dict[str, int], most: int) -> None:
    assert assert_as_all(worker, name, mesh, HERE / "large_checks.py") <= most
