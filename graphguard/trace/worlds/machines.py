"""The machines that the ranks are on: which of its variables a program reads, and what they are there.

Ranks are recorded as on one machine, where ``LOCAL_RANK`` is ``RANK``.  What a program computes of such a variable may be right there alone, so a check whose ranks read one is recorded once more
as on several machines, where it is not.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from types import FrameType
from typing import Any, Final

from graphguard.ir.machines import ONE_MACHINE
from graphguard.ir.spans import Span
from graphguard.trace.calls import state
from graphguard.trace.source.provenance import frame_at, is_shown
from graphguard.trace.source.sources import is_installed, is_torch

_NAMES: Final = frozenset(("LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK"))
_ASKS: Final = "get_node_local_rank"
_LOOKING_UP: Final = frozenset(("os.py", "_collections_abc.py"))


def environment(rank: int, size: int, machines: int) -> dict[str, int | str]:
    """The variables that ``torchrun`` sets for a rank, with as many ranks on each machine."""
    local = max(1, size // machines)
    return {
        "RANK": rank,
        "LOCAL_RANK": rank % local,
        "GROUP_RANK": rank // local,
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": local,
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": 29500,
    }


def assumed(reads: Iterable[tuple[str, Span]]) -> tuple[str, ...]:
    """What a check rests on whose ranks read these variables at these places."""
    places = {name: f"{os.path.basename(span.file)}:{span.line}" for name, span in reads}
    return tuple(f"{ONE_MACHINE}{name} is read at {place}" for name, place in places.items())


def watch() -> None:
    """Note where the user's own code reads such a variable; what PyTorch reads for itself chooses devices."""
    variables: Any = type(os.environ)
    usual = variables.__getitem__

    def read(this: Any, name: str) -> Any:
        if name in _NAMES:
            _note(name, sys._getframe(1))  # noqa: SLF001 - who asks is what counts
        return usual(this, name)

    variables.__getitem__ = read


def _note(name: str, frame: FrameType | None) -> None:
    world = state.current_world()
    asks = world is not None
    while asks and frame is not None:
        code = frame.f_code
        if is_shown(code):
            assert world is not None
            if not is_installed(code.co_filename):  # which look at all variables, or choose devices
                world.reads.setdefault(name, frame_at(code, frame.f_lasti).span)
            return
        file = code.co_filename
        asks = code.co_name == _ASKS or not is_torch(file) or os.path.basename(file) in _LOOKING_UP
        frame = frame.f_back
