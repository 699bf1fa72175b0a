"""Handles of asynchronous collectives that are already done."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist


class _Finished(dist.Work):
    """A work whose future holds the tensors the collective was called on, as NCCL's does; whoever learns that it is done has waited for it."""

    def __init__(self, tensors: list[torch.Tensor], waited: Callable[[], None]) -> None:
        super().__init__()
        self._tensors = tensors
        self.waited = waited

    def wait(self, timeout: Any = None) -> bool:  # noqa: ARG002  # torch's signature
        self.waited()
        return True

    def synchronize(self) -> None:
        """The current stream waits."""
        self.waited()

    def block_current_stream(self) -> None:
        """The current stream waits."""
        self.waited()

    def is_completed(self) -> bool:
        """It is, and the program knows."""
        self.waited()
        return True

    def is_success(self) -> bool:
        """It is, and the program knows."""
        self.waited()
        return True

    def result(self) -> list[torch.Tensor]:
        """The tensors the collective was called on."""
        return self._tensors

    def get_future(self) -> Any:
        """A completed future of the tensors."""
        if "get_future" not in sys._getframe(1).f_code.co_names:  # noqa: SLF001
            self.waited()  # C++ asks, such as DDP's reducer, which waits out of our sight
        future = _Future(self.waited)
        future.set_result(self._tensors)
        return future


class _Future(torch.futures.Future):
    """A future that tells when the program waits for it; a callback runs when it is done."""

    def __init__(self, waited: Callable[[], None]) -> None:
        super().__init__()
        self._waited = waited

    def wait(self) -> Any:
        self._waited()
        return super().wait()

    def value(self) -> Any:
        self._waited()
        return super().value()

    def done(self) -> bool:
        self._waited()
        return bool(super().done())

    def then(self, callback: Any) -> Any:
        self._waited()
        return super().then(callback)

    def add_done_callback(self, callback: Any) -> None:
        self._waited()
        super().add_done_callback(callback)

    @property
    def waited(self) -> Callable[[], None]:
        """What is to be called when the program waits."""
        return self._waited


def collecting(collect_all: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """``torch.futures.collect_all``, whose future is waited for where that of a collective would be."""

    def collected(futures: list[Any]) -> Any:
        together = collect_all(futures)
        each = [future.waited for future in futures if isinstance(future, _Future)]
        if not each or not together.done():
            return together

        def waited() -> None:
            for one in each:
                one()

        future = _Future(waited)
        future.set_result(list(futures))
        return future

    return collected


def waiting(wait_all: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """``torch.futures.wait_all``, which waits without asking the futures."""

    def waited(futures: list[Any]) -> Any:
        for future in futures:
            if isinstance(future, _Future):
                future.waited()
        return wait_all(futures)

    return waited


def as_batch(works: list[Any]) -> list[Any]:
    """Works of one batch of messages: NCCL has one handle for all of them."""
    parts = [work for work in works if isinstance(work, _Finished)]
    each = [work.waited for work in parts]

    def waited() -> None:
        for one in each:
            one()

    for work in parts:
        work.waited = waited
    return works


_alive: list[_Finished] = []


def finished_work(operand: Any, waited: Callable[[], None]) -> Any:
    """A boxed work, done, as c10d operators return it; ``waited`` is called when the program waits for it."""
    return finished(_flat(operand), waited).boxed()


def finished(tensors: list[torch.Tensor], waited: Callable[[], None]) -> dist.Work:
    """A work, done, on these tensors; ``waited`` is called when the program waits for it."""
    work = _Finished(tensors, waited)
    _alive.append(work)  # a boxed object holds the C++ half only
    return work


def done() -> dist.Work:
    """A work with nothing left to wait for."""
    return _Finished([], lambda: None)


def forget_works() -> None:
    """Let go of the works of a finished recording."""
    _alive.clear()


def _flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in _flat(item)]
    return []
