"""What stands for CUDA's streams, events and graphs where nothing runs on a device."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from graphguard.trace.gpu import own_device
from graphguard.trace.source.errors import TracingError


class Stream:
    """A stream on which nothing waits."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.device = own_device.device()
        self.device_index = own_device.index()
        self.cuda_stream = 0
        self.priority = 0

    def wait_stream(self, stream: Any) -> None:
        """Nothing to wait for."""

    def wait_event(self, event: Any) -> None:
        """Nothing to wait for."""

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def record_event(self, event: Any = None) -> Any:
        """An event that has happened."""
        return event or Event()

    def query(self) -> bool:
        """All work is done."""
        return True

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class Event:
    """An event that has happened."""

    def __init__(self, *_: Any, **__: Any) -> None:
        return None

    def record(self, stream: Any = None) -> None:
        """It has happened."""

    def wait(self, stream: Any = None) -> None:
        """It has happened."""

    def synchronize(self) -> None:
        """It has happened."""

    def query(self) -> bool:
        """It has happened."""
        return True

    def elapsed_time(self, other: Any) -> float:  # noqa: ARG002  # PyTorch's signature
        """No time passes."""
        return 0.0


class CudaGraph:
    """A CUDA graph: what is captured runs when it is replayed, on what its memory holds then."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise TracingError(
            "unsupported-operator",
            "the program captures a CUDA graph, which is not recorded\nfix: check the program without the capture; a replay runs the same operators",
        )


class AnyDevice(contextlib.nullcontext[None]):
    """``torch.cuda.device``: choosing a device changes nothing."""

    def __init__(self, *_: Any) -> None:
        super().__init__()


class Profiler:
    """NVIDIA's profiler is told nothing, whichever range a program opens or closes; ranges have numbers."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name.startswith("__"):
            raise AttributeError(name)
        return always(0)


def always(value: Any) -> Callable[..., Any]:
    """A new function each time: PyTorch's tables of its functions do not allow one under two names."""
    return lambda *_, **__: value
