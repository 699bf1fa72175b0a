"""Counters by which autograd sees that memory which it saved was written over: where PyTorch's kernels write by further calls that count, nothing else counts in a recording."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import torch
from torch.autograd.graph import increment_version

from graphguard.trace.calls.kinds import Kind

_LISTS: Final = "_foreach_"
_ALWAYS: Final = ("c10d::allgather_",)
"""Every backend copies what arrives into the tensors of the list."""
_ON_GLOO: Final = (
    "c10d::_allgather_base_",
    "c10d::allgather_into_tensor_coalesced_",
    "c10d::reduce_scatter_",
    "c10d::_reduce_scatter_base_",
    "c10d::reduce_scatter_tensor_coalesced_",
    "c10d::allreduce_coalesced_",
)


def count_writes(kind: Kind, args: Any, *, gloo: bool = False) -> None:
    """Count that a call has written its first argument, as PyTorch's kernels do, and raise what a copy into a leaf does; measured with torch 2.13."""
    copies = kind.name in _ALWAYS or (gloo and kind.name in _ON_GLOO)
    if copies or (kind.is_mutable and kind.short_name.startswith(_LISTS)):
        written = [each for each in _tensors(args[0]) if not each.is_inference()]
        if copies and torch.is_grad_enabled() and any(each.is_leaf and each.requires_grad for each in written):
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
        increment_version(written)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)
