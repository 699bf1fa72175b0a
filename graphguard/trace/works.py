"""Handles of asynchronous collectives that are already done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist


class _Finished(dist.Work):
    """A work whose future holds the tensors the collective was called on, as NCCL's does."""

    def __init__(self, tensors: list[torch.Tensor], waited: Callable[[], None]) -> None:
        super().__init__()
        self._tensors = tensors
        self._waited = waited

    def wait(self, timeout: Any = None) -> bool:  # noqa: ARG002  # torch's signature
        self._waited()
        return True

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def is_completed(self) -> bool:
        """Always."""
        return True

    def is_success(self) -> bool:
        """Always."""
        return True

    def result(self) -> list[torch.Tensor]:
        """The tensors the collective was called on."""
        return self._tensors

    def get_future(self) -> Any:
        """A completed future of the tensors."""
        future: Any = torch.futures.Future()
        future.set_result(self._tensors)
        return future


_alive: list[_Finished] = []


def finished_work(operand: Any, waited: Callable[[], None]) -> Any:
    """A boxed work, done, as c10d operators return it; ``waited`` is called when the program waits for it."""
    tensors = _flat(operand)
    work = _Finished(tensors, waited)
    _alive.append(work)  # the boxed object holds the C++ half only
    return work.boxed()


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
