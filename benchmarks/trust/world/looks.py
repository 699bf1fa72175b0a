"""What collectives are given: memory that is not dense is refused by NCCL, and read as if it were by gloo."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

NAMES = (
    "all_reduce",
    "all_reduce_coalesced",
    "broadcast",
    "reduce",
    "all_gather",
    "all_gather_into_tensor",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "all_to_all",
    "all_to_all_single",
    "scatter",
    "gather",
    "send",
    "recv",
    "isend",
    "irecv",
)


@dataclass(slots=True)
class Noted:
    """Whether a collective was given memory with gaps or overlaps."""

    not_dense: bool = False

    def look(self, value: Any) -> None:
        """Look at an argument of a collective."""
        if isinstance(value, torch.Tensor):
            self.not_dense |= not torch.ops.aten.is_non_overlapping_and_dense(value)
        elif isinstance(value, list | tuple):
            for each in value:
                self.look(each)


@contextmanager
def noting() -> Iterator[Noted]:
    """Note what collectives are given."""
    noted = Noted()

    def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            noted.look([*arguments, *options.values()])
            return function(*arguments, **options)

        return call

    with replaced({name: wrapped(getattr(dist, name)) for name in NAMES}):
        yield noted


@contextmanager
def replaced(functions: dict[str, Callable[..., Any]]) -> Iterator[None]:
    """Put functions in the place of those of ``torch.distributed``."""
    before = {name: getattr(dist, name) for name in functions}
    for module in (dist, distributed_c10d):
        for name, function in functions.items():
            setattr(module, name, function)
    try:
        yield
    finally:
        for module in (dist, distributed_c10d):
            for name, function in before.items():
                setattr(module, name, function)
