"""What a program sees of the rank that it runs as, while it is recorded."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import _disable_current_modes

from graphguard.ir.spans import Span
from graphguard.trace.calls.communicators import Communicators


class RankView:
    """One rank of a job: its number, its device, its groups.

    With several ``machines`` as many ranks are on each; ``reads`` are the variables that say so which the program has read, and where.
    """

    def __init__(self, rank: int, axes: dict[str, int], device: str, machines: int) -> None:
        self.rank = rank
        self.axes = dict(axes)
        self.device = device
        self.backend = "nccl" if device == "cuda" else "gloo"
        self.machines = machines
        self.reads: dict[str, Span] = {}
        self.communicators = Communicators()
        self.chose_gloo = False
        self.asked_for_cuda = False
        self._joined = False

    @property
    def size(self) -> int:
        """Number of ranks."""
        total = 1
        for extent in self.axes.values():
            total *= extent
        return total

    def init_process_group(self, backend: Any = None, *_: Any, **kwargs: Any) -> None:
        """What the program's own call does: the group exists already; only a second call is one too many, as in PyTorch."""
        world_size = kwargs.get("world_size", -1)
        if world_size not in (-1, None, self.size):
            raise ValueError(f"init_process_group(world_size={world_size}) in a check whose mesh has {self.size} ranks")
        if self._joined and dist.is_initialized():
            raise ValueError("trying to initialize the default process group twice!")
        if isinstance(backend, str):
            self.backend = backend.rpartition(":")[2]
            self.chose_gloo = self.backend == "gloo"
        if not dist.is_initialized():
            self.begin()
        self._joined = True

    def begin(self) -> None:
        """There is the group of all ranks, and no other."""
        original = c10d.init_process_group.__wrapped__
        with _disable_current_modes():
            original("fake", rank=self.rank, world_size=self.size, store=FakeStore())
        self.communicators.begin(self.size)
