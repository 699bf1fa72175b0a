"""The laziest of the schedules that an asynchronous collective may have: it begins when somebody waits for it.

Gloo, left alone on small tensors, is nearly always done before the next line: what a program does without having waited is right there by chance.
Collectives of one group still run in the order of their calls.  One that nobody waits for begins once ``seconds`` are over, as the other ranks
may wait for what this one has only issued.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from torch.distributed import _functional_collectives as funcol

from benchmarks.trust.world.looks import NAMES, replaced

_SENT = ("isend", "irecv")


class Handle:
    """An asynchronous collective that has not begun."""

    def __init__(self, wanted: threading.Event, before: Callable[[], None], future: Future[Any]) -> None:
        self._wanted = wanted
        self._before = before
        self._future = future

    def wait(self, *_: Any) -> bool:
        """Begin, with what is before it, and wait for the end."""
        self._before()
        self._wanted.set()
        self._future.result()
        return True

    synchronize = wait

    def is_completed(self) -> bool:
        """Whether it is done."""
        return self._future.done()


class Schedule:
    """One thread for each group, as each group has one order."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._threads: dict[Any, ThreadPoolExecutor] = {}
        self._issued: dict[Any, list[threading.Event]] = {}

    def end(self) -> None:
        """The program has returned: whatever is left may happen now."""
        for queue in list(self._issued):
            self._begin(queue)
        for thread in self._threads.values():
            thread.submit(lambda: None).result()

    def wrapped(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of ``torch.distributed`` that is put off."""

        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            asynchronous = bool(options.pop("async_op", False)) or name in _SENT
            queue = _queue(name, arguments, options)
            if threading.current_thread() is not threading.main_thread():
                return function(*arguments, **options)
            wanted = threading.Event()
            before = list(self._issued.setdefault(queue, []))
            self._issued[queue].append(wanted)

            def run() -> Any:
                wanted.wait(self._seconds)
                result = function(*arguments, **options)
                return result.wait() if name in _SENT else result

            thread = self._threads.setdefault(queue, ThreadPoolExecutor(1))
            handle = Handle(wanted, lambda: [event.set() for event in before] and None, thread.submit(run))
            return handle if asynchronous else handle.wait() and None

        return call

    def following(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A functional collective, which runs at once: after what its group was asked before."""

        @functools.wraps(function)
        def call(tensor: Any, operator: str, group: Any, *rest: Any) -> Any:
            queue = _queue(function.__name__, (group,), {})
            if threading.current_thread() is threading.main_thread() and queue in self._threads:
                self._begin(queue)
                self._threads[queue].submit(lambda: None).result()
            return function(tensor, operator, group, *rest)

        return call

    def _begin(self, queue: Any) -> None:
        for event in self._issued[queue]:
            event.set()


def _queue(name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """What orders a call: its group, or for messages the two ranks and the direction."""
    if name in ("send", "recv", *_SENT):
        peer = options.get("dst", options.get("src", arguments[1] if len(arguments) > 1 else None))
        return name.removeprefix("i"), peer
    groups = [each for each in (*arguments, options.get("group")) if isinstance(each, dist.ProcessGroup)]
    return id(groups[0]) if groups and groups[0] is not dist.group.WORLD else None


@contextmanager
def schedule(seconds: float) -> Iterator[Schedule]:
    """Put off what is asynchronous, where ``seconds`` are given."""
    made = Schedule(seconds)
    if not seconds:
        yield made
        return
    functional = funcol.all_reduce
    funcol.all_reduce = made.following(functional)
    try:
        with replaced({name: made.wrapped(name, getattr(dist, name)) for name in (*NAMES, "barrier")}):
            yield made
    finally:
        funcol.all_reduce = functional
