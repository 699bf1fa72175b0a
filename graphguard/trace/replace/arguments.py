"""Arguments of PyTorch's that are no tensors, as an event holds them."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from graphguard.ir.graph import DType
from graphguard.trace.calls import state
from graphguard.trace.calls.collectives import PREMULTIPLIED, REDUCE_OPS
from graphguard.trace.calls.constants import dtype_name
from graphguard.trace.calls.events import Members, Opaque
from graphguard.trace.calls.geometry import size_of
from graphguard.trace.replace.premultiplied import factor

# Types that are asked for at every call: as tuples, because a union is built anew each time that it is written out.
SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_AS_THEY_ARE = (complex, torch.device, torch.layout, torch.memory_format, Members)


def plain(value: Any) -> Any:
    """A single argument that is no tensor; what has no value of its own in the graph by description."""
    if isinstance(value, SYMBOLS):
        return size_of(value)
    if isinstance(value, torch.dtype):
        return DType(dtype_name(value))
    if isinstance(value, _AS_THEY_ARE):
        return value
    if isinstance(value, torch._C.ScriptObject):  # noqa: SLF001
        return _script_object(value)
    return Opaque(getattr(value, "__qualname__", type(value).__qualname__))


def with_group(value: Any) -> Any:
    """An argument of a collective with its group's members in place of the group."""
    return _script_object(value) if isinstance(value, torch._C.ScriptObject) else value  # noqa: SLF001


def members(group: Any) -> Members:
    """A process group as its global ranks in group order, and which of the groups of these ranks it is."""
    world = state.current_world()
    earlier = 0 if world is None else world.communicators.earlier(group.group_name)
    return Members(tuple(dist.get_process_group_ranks(group)), group.group_name, earlier)


def _script_object(value: Any) -> Members | Opaque:
    name = value._type().qualified_name() if hasattr(value, "_type") else type(value).__qualname__  # noqa: SLF001
    if name.endswith(".ProcessGroup"):
        return members(dist.ProcessGroup.unbox(value))
    if name.endswith(".ReduceOp"):
        number = int(value.op())
        return Opaque(f"premul_sum:{factor()}" if number == PREMULTIPLIED else REDUCE_OPS[number])
    return Opaque(name)
