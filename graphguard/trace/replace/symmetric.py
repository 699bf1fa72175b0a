"""Symmetric memory (``torch.distributed._symmetric_memory``): memory like any other; what reaches into another rank's by its handle is one diagnostic.

What operators on it fuse is in :mod:`~graphguard.trace.calls.symmetric_steps`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import _symmetric_memory as memory
from torch.distributed.distributed_c10d import _resolve_process_group

from graphguard.trace.calls import state
from graphguard.trace.source.errors import TracingError


class _Handle:
    """What a rank has of symmetric memory: its place among the others, and no way into theirs."""

    def __init__(self, group: Any) -> None:
        self._group = _resolve_process_group(group) if isinstance(group, str) else group
        self.rank: int = self._group.rank()
        self.world_size: int = self._group.size()

    def barrier(self, *_: Any, **__: Any) -> None:
        """All ranks meet."""
        dist.barrier(self._group)

    def __getattr__(self, name: str) -> Any:
        message = f"'{name}' of symmetric memory reaches into other ranks' memory, which cannot be recorded\nuse torch.ops.symm_mem's collectives or those of torch.distributed"
        raise TracingError("trace-error", message)


def install() -> None:
    """Replace the memory's allocation and rendezvous while a program is recorded."""
    allocate, meet = memory.empty, memory.rendezvous

    def empty(*size: Any, dtype: Any = None, device: Any = None) -> Any:
        """See ``torch.distributed._symmetric_memory.empty``."""
        if state.current_recorder() is None:
            return allocate(*size, dtype=dtype, device=device)
        return torch.empty(*size, dtype=dtype, device=device)

    def rendezvous(tensor: Any, group: Any) -> Any:
        """See ``torch.distributed._symmetric_memory.rendezvous``."""
        return meet(tensor, group) if state.current_recorder() is None else _Handle(group)

    memory.empty, memory.rendezvous = empty, rendezvous
