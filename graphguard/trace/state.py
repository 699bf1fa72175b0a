"""Which world and which recorder are active in this process: what the replacements of PyTorch's functions look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphguard.trace.recorder import Recorder
    from graphguard.trace.world import World

_worlds: list[World] = []
_recorders: list[Recorder] = []
#: Files that asked for a CUDA device outside of any world, as they do while they are imported.
asking_files: set[str] = set()


def current_world() -> World | None:
    """The rank whose view ``torch.distributed`` shows, if any."""
    return _worlds[-1] if _worlds else None


def current_recorder() -> Recorder | None:
    """The recorder that sees what runs, if any."""
    return _recorders[-1] if _recorders else None


def push_world(world: World) -> None:
    """``world`` is active from here."""
    _worlds.append(world)


def pop_world() -> None:
    """The world before is active again."""
    _worlds.pop()


def push_recorder(recorder: Recorder) -> None:
    """``recorder`` sees what runs from here."""
    _recorders.append(recorder)


def pop_recorder() -> None:
    """The recorder before sees what runs again."""
    _recorders.pop()
