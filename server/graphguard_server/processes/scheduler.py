"""When checks run: after a pause in typing, the most wanted first, a few at a time, and never on what an edit made obsolete.

Requests of the editor are answered at once from the last results and do not pass through here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

Key = TypeVar("Key")

FIRST_PAUSE: Final = 0.05
TYPING_PAUSE: Final = 0.3
TYPING_WINDOW: Final = 1.0


class Pauses:
    """How long to wait after an edit: hardly at all after a single one, longer within a burst.

    A burst then costs at most two runs: one from its first edit, which the second cancels, and one after the last.
    """

    def __init__(self) -> None:
        self._last = -TYPING_WINDOW

    def after_edit(self, now: float) -> float:
        """The pause in seconds that an edit at ``now`` asks for."""
        in_burst = now - self._last < TYPING_WINDOW
        self._last = now
        return TYPING_PAUSE if in_burst else FIRST_PAUSE


@dataclass(slots=True)
class _Waiting:
    due: float
    order: int


class Scheduler(Generic[Key]):
    """Runs the job of each requested key, at most ``limit`` at a time; requests for one key are merged."""

    def __init__(self, job: Callable[[Key], Awaitable[None]], changed: Callable[[], None], limit: int = 2) -> None:
        self._job = job
        self._changed = changed
        self._limit = limit
        self._waiting: dict[Key, _Waiting] = {}
        self._running: dict[Key, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def running(self) -> tuple[Key, ...]:
        """Keys whose job is under way."""
        return tuple(self._running)

    @property
    def waiting(self) -> tuple[Key, ...]:
        """Keys that wait for their turn."""
        return tuple(self._waiting)

    def stops(self, key: Key) -> bool:
        """Whether the job of a key is under way and was told to stop."""
        task = self._running.get(key)
        return task is not None and task.cancelling() > 0

    @property
    def busy(self) -> bool:
        """Whether anything runs or waits."""
        return bool(self._running or self._waiting)

    def request(self, key: Key, delay: float = 0.0, order: int = 0) -> None:
        """Ask for a run after ``delay`` seconds; of those due, lower ``order`` comes first.

        A job of the same key that is under way is left alone; the new one starts after it.
        """
        if self._closed:
            return
        self._waiting[key] = _Waiting(time.monotonic() + delay, order)
        self._wake()

    def cancel(self, keys: Iterable[Key]) -> int:
        """Drop requests and stop jobs of these keys; returns how many there were."""
        count = 0
        for key in keys:
            found = self._waiting.pop(key, None) is not None
            task = self._running.get(key)
            if task is not None and not task.done():
                task.cancel()
                found = True
            count += found
        if count:
            self._wake()
            self._changed()
        return count

    async def close(self) -> None:
        """Stop everything and wait until it has stopped."""
        self._closed = True
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
        tasks = tuple(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _wake(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._closed or not self._waiting:
            return
        now = time.monotonic()
        startable = sorted(
            (key for key in self._waiting if key not in self._running),
            key=lambda key: (self._waiting[key].order, self._waiting[key].due),
        )
        for key in startable:
            if len(self._running) >= self._limit:
                return
            if self._waiting[key].due <= now:
                self._start(key)
        due = [self._waiting[key].due for key in startable if key in self._waiting]
        if due:
            self._timer = asyncio.get_running_loop().call_later(max(min(due) - now, 0.001), self._wake)

    def _start(self, key: Key) -> None:
        del self._waiting[key]
        task = asyncio.ensure_future(self._job(key))
        self._running[key] = task
        task.add_done_callback(lambda _done: self._finished(key))

    def _finished(self, key: Key) -> None:
        task = self._running.pop(key)
        self._wake()
        self._changed()
        if not task.cancelled() and (error := task.exception()) is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a check ended with an unexpected error", "exception": error, "task": task}
            )
