"""The scheduler: order, limit, merging, cancelling."""

from __future__ import annotations

import asyncio

import pytest
from graphguard_server.processes.scheduler import FIRST_PAUSE, TYPING_PAUSE, Pauses, Scheduler


class Jobs:
    """Jobs that end when they are told to."""

    def __init__(self, limit: int = 1) -> None:
        self.started: list[str] = []
        self.cancelled: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.scheduler: Scheduler[str] = Scheduler(self.run, lambda: None, limit)

    async def run(self, key: str) -> None:
        self.started.append(key)
        try:
            await self.gates.setdefault(key, asyncio.Event()).wait()
        except asyncio.CancelledError:
            self.cancelled.append(key)
            raise

    def finish(self, key: str) -> None:
        self.gates.setdefault(key, asyncio.Event()).set()


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0.01)


async def test_lower_order_comes_first_and_the_limit_holds() -> None:
    jobs = Jobs(limit=1)
    jobs.scheduler.request("busy")
    for key, order in (("later", 1), ("first", -1), ("second", 0)):
        jobs.scheduler.request(key, order=order)
    await turns()
    assert jobs.started == ["busy"]
    for key in ("busy", "first", "second", "later"):
        jobs.finish(key)
        await turns()
    assert jobs.started == ["busy", "first", "second", "later"]
    assert not jobs.scheduler.busy


async def test_requests_for_one_key_are_merged_and_the_last_pause_counts() -> None:
    jobs = Jobs()
    jobs.finish("a")
    for _ in range(5):
        jobs.scheduler.request("a", delay=0.08)
        await asyncio.sleep(0.03)
    assert jobs.started == []
    await asyncio.sleep(0.15)
    assert jobs.started == ["a"]


async def test_a_request_while_the_job_runs_makes_one_more_run() -> None:
    jobs = Jobs(limit=4)
    jobs.scheduler.request("a")
    await turns()
    jobs.scheduler.request("a")
    await turns()
    assert jobs.started == ["a"]
    jobs.finish("a")
    await turns()
    assert jobs.started == ["a", "a"]


async def test_cancelling_drops_what_waits_and_stops_what_runs() -> None:
    jobs = Jobs(limit=1)
    jobs.scheduler.request("runs")
    jobs.scheduler.request("waits")
    await turns()
    assert not jobs.scheduler.stops("runs")
    assert jobs.scheduler.cancel(["runs", "waits", "unknown"]) == 2
    assert jobs.scheduler.stops("runs")
    await turns()
    assert jobs.cancelled == ["runs"]
    assert jobs.started == ["runs"]


async def test_closing_stops_everything_and_accepts_nothing_more() -> None:
    jobs = Jobs()
    jobs.scheduler.request("a")
    await turns()
    await jobs.scheduler.close()
    jobs.scheduler.request("b")
    await turns()
    assert jobs.cancelled == ["a"]
    assert jobs.started == ["a"]


async def test_a_job_that_fails_is_reported_and_the_next_one_runs() -> None:
    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))
    done = asyncio.Event()

    async def job(key: str) -> None:
        if key == "bad":
            raise ValueError(key)
        done.set()

    scheduler: Scheduler[str] = Scheduler(job, lambda: None, 1)
    scheduler.request("bad")
    scheduler.request("good")
    async with asyncio.timeout(2):
        await done.wait()
    assert isinstance(reported[0]["exception"], ValueError)


@pytest.mark.parametrize(
    ("gap", "pauses"), [(0.04, [FIRST_PAUSE, TYPING_PAUSE, TYPING_PAUSE]), (2.0, [FIRST_PAUSE] * 3)]
)
def test_pauses_are_short_for_a_single_edit_and_longer_in_a_burst(gap: float, pauses: list[float]) -> None:
    found = Pauses()
    assert [found.after_edit(100 + gap * number) for number in range(3)] == pauses
