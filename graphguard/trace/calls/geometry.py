"""Sizes and places in memory of fake tensors as plain data."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import torch

from graphguard.ir.graph import Size, Sym
from graphguard.trace.calls.constants import dtype_name
from graphguard.trace.calls.events import Geometry

stride_of: Final = torch._C.TensorBase.stride  # noqa: SLF001
"""The strides of a tensor; not by the attribute, which is looked up in Python (see :mod:`~graphguard.trace.replace.shadowed`)."""


def size_of(size: Any) -> Size:
    """An extent as a number, or as an expression over symbols."""
    if type(size) is int:
        return size
    if isinstance(size, torch.SymInt):
        known = size.node.maybe_as_int()
        return Sym(str(size.node.expr)) if known is None else int(known)
    return Sym(str(size.node.expr))


def geometry_of(tensor: torch.Tensor) -> Geometry:
    """Which elements of its storage a tensor shows."""
    dtype, shape, strides, offset = tensor.dtype, tensor.shape, stride_of(tensor), tensor.storage_offset()
    if not tensor._has_symbolic_sizes_strides:  # noqa: SLF001  # PyTorch offers no public way to ask
        if tensor.is_conj() or tensor.is_neg():
            return _geometry(_marked(tensor), shape, strides, offset)
        return _plain_geometry(dtype, shape, strides, offset)
    sizes = tuple(size_of(size) for size in shape)
    steps = tuple(0 if n == 1 else size_of(step) for n, step in zip(sizes, strides, strict=True))
    return (size_of(offset), sizes, steps, _marked(tensor))


def _marked(tensor: torch.Tensor) -> str:
    """The element type, ``*`` where the elements are the conjugates of those in memory, ``-`` where they are their negatives: either, or both."""
    return dtype_name(tensor.dtype) + "*" * tensor.is_conj() + "-" * tensor.is_neg()


@lru_cache(maxsize=1 << 14)
def _plain_geometry(dtype: torch.dtype, shape: Any, strides: Any, offset: int) -> Geometry:
    return _geometry(dtype_name(dtype), shape, strides, offset)


def _geometry(name: str, shape: Any, strides: Any, offset: int) -> Geometry:
    steps = tuple(0 if n == 1 else step for n, step in zip(shape, strides, strict=True)) if 1 in shape else strides
    return (offset, tuple(shape), steps, name)
