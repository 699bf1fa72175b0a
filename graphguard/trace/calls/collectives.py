"""Every collective of PyTorch in one vocabulary.

``c10d`` and ``_c10d_functional`` have some forty operators for eleven meanings: in place, listed, flat, coalesced, functional.
:func:`calls_of` reads any of them as :class:`Call`, over whatever stands for tensors (real ones, or references in a recorded event).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from graphguard.trace.calls.events import Members, Opaque

REDUCE_OPS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum")
"""The names of ``c10d::ReduceOp::RedOpType`` in its order."""
PREMULTIPLIED = REDUCE_OPS.index("premul_sum")

MEMORY: Final = "memory"
"""A back end takes, or fills, as many elements as the tensor has from where it begins in memory: it must be dense, and their order is that of memory."""
COPIED: Final = "copied"
"""PyTorch copies the tensor first, or the result into it, index by index: it may lie in memory as it likes."""
CLONED: Final = "cloned"
"""The others take a clone, which keeps the order of a dense tensor and lays out any other row by row; what is a rank's own is copied, index by index."""
ADDED: Final = "added"
"""The members' clones are added up as they lie in memory, and each member copies its part of the sum, index by index."""
CONTIGUOUS: Final = "contiguous"
"""As ``MEMORY``, and only row by row: PyTorch raises an error otherwise."""


@dataclass(frozen=True, slots=True)
class Call:
    """One collective.

    ``reads`` and ``writes`` hold tensors: a list with one per member, or, where ``flat``, one tensor that is cut along dim 0 into
    ``read_splits`` / ``write_splits`` (empty: evenly).  ``peer`` is a global rank: the root, the source or the destination.
    ``given`` and ``taken`` say how memory becomes the values that are exchanged, and these become memory.
    ``earlier``: how many groups of the same ranks were made before this one.
    """

    kind: str
    group: tuple[int, ...]
    reads: tuple[Any, ...]
    writes: tuple[Any, ...]
    reduce: str = ""
    peer: int = -1
    tag: int = 0
    flat: bool = False
    read_splits: tuple[Any, ...] = ()
    write_splits: tuple[Any, ...] = ()
    given: str = MEMORY
    taken: str = MEMORY
    earlier: int = 0


def calls_of(op: str, args: tuple[Any, ...], out: Any) -> list[Call] | None:
    """The collectives that one operator call is; empty for one that only waits, None for what is none."""
    namespace, _, name = op.partition("::")
    if namespace == "c10d":
        read = _C10D.get(name)
    elif namespace in ("_c10d_functional", "_c10d_functional_autograd"):
        read = _FUNCTIONAL.get(name)
    else:
        return None
    if read is None:
        return None
    given, taken = _WAYS.get(op, (MEMORY, MEMORY))
    earlier = next((arg.earlier for arg in args if isinstance(arg, Members)), 0)
    return [replace(call, given=given, taken=taken, earlier=earlier) for call in read(args, out)]


_WAYS: Final = {
    "c10d::allreduce_coalesced_": (COPIED, COPIED),
    "c10d::allgather_": (COPIED, COPIED),
    "c10d::allgather_coalesced_": (COPIED, COPIED),
    "c10d::_allgather_base_": (COPIED, COPIED),
    "c10d::allgather_into_tensor_coalesced_": (COPIED, COPIED),
    "c10d::reduce_scatter_": (CLONED, MEMORY),
    "c10d::_reduce_scatter_base_": (ADDED, COPIED),
    "c10d::reduce_scatter_tensor_coalesced_": (ADDED, COPIED),
    "c10d::alltoall_base_": (CONTIGUOUS, MEMORY),
    "c10d::alltoall_": (COPIED, COPIED),
    "c10d::gather_": (COPIED, COPIED),
    "c10d::send": (CONTIGUOUS, MEMORY),
    "c10d::recv_": (MEMORY, CONTIGUOUS),
    "_c10d_functional::all_reduce": (COPIED, COPIED),
    "_c10d_functional::all_reduce_coalesced": (COPIED, COPIED),
    "_c10d_functional::broadcast": (COPIED, COPIED),
    "_c10d_functional::all_gather_into_tensor": (COPIED, COPIED),
    "_c10d_functional::all_gather_into_tensor_out": (COPIED, COPIED),
    "_c10d_functional::all_gather_into_tensor_coalesced": (COPIED, COPIED),
    "_c10d_functional::reduce_scatter_tensor": (COPIED, COPIED),
    "_c10d_functional::reduce_scatter_tensor_out": (COPIED, COPIED),
    "_c10d_functional::reduce_scatter_tensor_coalesced": (COPIED, COPIED),
    "_c10d_functional::all_to_all_single": (COPIED, COPIED),
    "_c10d_functional_autograd::all_gather_into_tensor": (COPIED, COPIED),
    "_c10d_functional_autograd::reduce_scatter_tensor": (COPIED, COPIED),
    "_c10d_functional_autograd::all_to_all_single": (COPIED, COPIED),
}
"""How operands are given and results are taken, as gloo does it; what is not here goes by memory both ways.  Measured on real processes, torch 2.13: ``tests/unit/trace/test_collectives.py`` runs them there."""


AS_MANY: Final = "collectives take tensors of other shapes with as many elements, as NCCL does; gloo raises an error"


def refuse_unlike(op: str, args: tuple[Any, ...], *, gloo: bool) -> bool:
    """Raise the error that every backend does where a call's tensors are of several element types, or of several shapes where each is one member's, and
    those that gloo alone has where it was chosen; whether there are such."""
    calls = calls_of(op, args, None) or []
    together: list[list[Any]] = [[*call.reads, *call.writes] for call in calls]
    if op == "c10d::allreduce_coalesced_":  # one call for all of them
        together = [[tensor for tensors in together for tensor in tensors]]
    for tensors in together:
        types = {tensor.dtype for tensor in tensors}
        if len(types) > 1:
            told = ", ".join(sorted(map(str, types)))
            raise RuntimeError(f"{calls[0].kind}: all tensors must have the same type, but they have {told}")
        if types & _NOWHERE and calls[0].kind not in ("send", "recv"):
            raise RuntimeError(f"{calls[0].kind}: invalid scalar type {next(iter(types))}")
    unlike = [call for call in calls if not _fit(call)]
    for call in unlike:
        if gloo or call.kind in _ALIKE:
            shapes = ", ".join(str(list(tensor.shape)) for tensor in (*call.reads, *call.writes))
            raise RuntimeError(f"{call.kind}: invalid tensor sizes {shapes}")
    return bool(unlike)


_NOWHERE: Final = frozenset((torch.int16, torch.uint16, torch.uint32, torch.uint64))
"""No backend has collectives of these types; gloo sends and receives their bytes."""
_ALIKE: Final = ("scatter", "gather")
"""All backends compare the shapes of a member's tensor with those of the list."""


def _fit(call: Call) -> bool:
    """Whether what is given and what is taken are of one shape, where a whole is that of its parts in a row; true where members may have parts of their own sizes."""
    if not call.reads or not call.writes or call.kind == "all_to_all":
        return True
    if not call.flat:
        tensors = (*call.reads, *call.writes)
        may_differ = call.kind not in _ALIKE and len({tensor.numel() for tensor in tensors}) > 1
        return may_differ or len({tuple(tensor.shape) for tensor in tensors}) == 1
    part, whole = (call.reads[0], call.writes[0]) if call.kind == "all_gather" else (call.writes[0], call.reads[0])
    if not part.dim() or not whole.dim():
        return part.numel() == whole.numel() or whole.dim() == 1
    return tuple(whole.shape) == (part.shape[0] * len(call.group), *part.shape[1:])


def on_nccl(call: Call) -> Call:
    """The call as NCCL does it: on memory, whatever gloo copies."""
    return replace(call, given=MEMORY, taken=MEMORY)


def reduction(argument: Any) -> str:
    """``sum``, ``avg``, ``max``, ``min`` or ``product``; ``premul_sum:`` and the factor; the operator's own name for any other."""
    return argument.text if isinstance(argument, Opaque) else str(argument)


def _ranks(group: Members) -> tuple[int, ...]:
    return group.ranks


def _each(kind: str) -> Callable[[Any, Any], list[Call]]:
    """In-place reductions of a list of tensors, one collective for each."""
    return lambda a, _: [Call(kind, _ranks(a[1]), (t,), (t,), reduce=reduction(a[2])) for t in a[0]]


def _all_gather(a: Any, _: Any) -> list[Call]:
    return [Call("all_gather", _ranks(a[2]), (x,), tuple(outs)) for outs, x in zip(a[0], a[1], strict=True)]


def _all_gather_coalesced(a: Any, _: Any) -> list[Call]:
    return [Call("all_gather", _ranks(a[2]), (x,), tuple(outs[i] for outs in a[0])) for i, x in enumerate(a[1])]


def _all_gather_flat(a: Any, _: Any) -> list[Call]:
    pairs = zip(_listed(a[0]), _listed(a[1]), strict=True)
    return [Call("all_gather", _ranks(a[2]), (x,), (out,), flat=True) for out, x in pairs]


def _reduce_scatter(a: Any, _: Any) -> list[Call]:
    pairs = zip(a[0], a[1], strict=True)
    return [Call("reduce_scatter", _ranks(a[2]), tuple(xs), (out,), reduce=reduction(a[3])) for out, xs in pairs]


def _reduce_scatter_flat(a: Any, _: Any) -> list[Call]:
    pairs = zip(_listed(a[0]), _listed(a[1]), strict=True)
    return [Call("reduce_scatter", _ranks(a[2]), (x,), (out,), reduce=reduction(a[3]), flat=True) for out, x in pairs]


def _all_to_all_flat(a: Any, _: Any) -> list[Call]:
    splits = tuple(a[4]), tuple(a[3])
    return [
        Call("all_to_all", _ranks(a[2]), (a[1],), (a[0],), flat=True, read_splits=splits[0], write_splits=splits[1])
    ]


def _all_to_all(a: Any, _: Any) -> list[Call]:
    return [Call("all_to_all", _ranks(a[2]), tuple(a[1]), tuple(a[0]))]


def _broadcast(a: Any, _: Any) -> list[Call]:
    group = _ranks(a[1])
    return [Call("broadcast", group, (t,), (t,), peer=_peer(group, a[2])) for t in a[0]]


def _reduce(a: Any, _: Any) -> list[Call]:
    group = _ranks(a[1])
    return [Call("reduce", group, (t,), (t,), reduce=reduction(a[2]), peer=_peer(group, a[3])) for t in a[0]]


def _gather(a: Any, _: Any) -> list[Call]:
    group = _ranks(a[2])
    outs = tuple(a[0][0]) if a[0] else ()
    return [Call("gather", group, (a[1][0],), outs, peer=_peer(group, a[3]))]


def _scatter(a: Any, _: Any) -> list[Call]:
    group = _ranks(a[2])
    xs = tuple(a[1][0]) if a[1] else ()
    return [Call("scatter", group, xs, (a[0][0],), peer=_peer(group, a[3]))]


def _send(a: Any, _: Any) -> list[Call]:
    group = _ranks(a[1])
    return [Call("send", group, (t,), (), peer=_peer(group, a[2]), tag=a[3]) for t in a[0]]


def _receive(a: Any, _: Any) -> list[Call]:
    group = _ranks(a[1])
    return [Call("recv", group, (), (t,), peer=_peer(group, a[2]), tag=a[3]) for t in a[0]]


def _barrier(a: Any, _: Any) -> list[Call]:
    return [Call("barrier", _ranks(a[1]), (), ())]


_C10D: dict[str, Callable[[Any, Any], list[Call]]] = {
    "allreduce_": _each("all_reduce"),
    "allreduce_coalesced_": _each("all_reduce"),
    "allgather_": _all_gather,
    "allgather_coalesced_": _all_gather_coalesced,
    "_allgather_base_": _all_gather_flat,
    "allgather_into_tensor_coalesced_": _all_gather_flat,
    "reduce_scatter_": _reduce_scatter,
    "_reduce_scatter_base_": _reduce_scatter_flat,
    "reduce_scatter_tensor_coalesced_": _reduce_scatter_flat,
    "alltoall_base_": _all_to_all_flat,
    "alltoall_": _all_to_all,
    "broadcast_": _broadcast,
    "reduce_": _reduce,
    "gather_": _gather,
    "scatter_": _scatter,
    "send": _send,
    "recv_": _receive,
    "barrier": _barrier,
    "monitored_barrier_": _barrier,
}


def _functional_reduce(a: Any, out: Any) -> list[Call]:
    pairs = zip(_listed(a[0]), _listed(out), strict=True)
    return [Call("all_reduce", _ranks(a[2]), (x,), (o,), reduce=reduction(a[1])) for x, o in pairs]


def _functional_gather(a: Any, out: Any) -> list[Call]:
    pairs = zip(_listed(a[0]), _listed(out), strict=True)
    return [Call("all_gather", _ranks(a[2]), (x,), (o,), flat=True) for x, o in pairs]


def _functional_reduce_scatter(a: Any, out: Any) -> list[Call]:
    pairs = zip(_listed(a[0]), _listed(out), strict=True)
    return [Call("reduce_scatter", _ranks(a[3]), (x,), (o,), reduce=reduction(a[1]), flat=True) for x, o in pairs]


def _functional_all_to_all(a: Any, out: Any) -> list[Call]:
    return [
        Call("all_to_all", _ranks(a[3]), (a[0],), (out,), flat=True, read_splits=tuple(a[2]), write_splits=tuple(a[1]))
    ]


def _peer(group: tuple[int, ...], place: int) -> int:
    """The member of a group that a call is addressed to; raises ``RuntimeError`` where it has none in this place."""
    if not 0 <= place < len(group):
        raise RuntimeError(
            f"rank {place} of its group is addressed, which has {len(group)} ranks, from 0 to {len(group) - 1}"
        )
    return group[place]


def _functional_broadcast(a: Any, out: Any) -> list[Call]:
    group = _ranks(a[2])
    return [Call("broadcast", group, (a[0],), (out,), peer=_peer(group, a[1]))]


def _functional_send(a: Any, _: Any) -> list[Call]:
    group = _ranks(a[3])
    return [Call("send", group, (a[0],), (), peer=_peer(group, a[1]), tag=a[2])]


def _functional_receive(a: Any, out: Any) -> list[Call]:
    group = _ranks(a[3])
    return [Call("recv", group, (), (out,), peer=_peer(group, a[1]), tag=a[2])]


def _functional_batch(a: Any, out: Any) -> list[Call]:
    group = _ranks(a[4])
    found = []
    for op, peer, tag, tensor, result in zip(a[0], a[1], a[2], a[3], out, strict=True):
        if "send" in op:
            found.append(Call("send", group, (tensor,), (), peer=_peer(group, peer), tag=tag))
        else:
            found.append(Call("recv", group, (), (result,), peer=_peer(group, peer), tag=tag))
    return found


_FUNCTIONAL: dict[str, Callable[[Any, Any], list[Call]]] = {
    "all_reduce": _functional_reduce,
    "all_reduce_": _functional_reduce,
    "all_reduce_coalesced": _functional_reduce,
    "all_reduce_coalesced_": _functional_reduce,
    "all_gather_into_tensor": _functional_gather,
    "all_gather_into_tensor_out": _functional_gather,
    "all_gather_into_tensor_coalesced": _functional_gather,
    "reduce_scatter_tensor": _functional_reduce_scatter,
    "reduce_scatter_tensor_out": _functional_reduce_scatter,
    "reduce_scatter_tensor_coalesced": _functional_reduce_scatter,
    "all_to_all_single": _functional_all_to_all,
    "broadcast": _functional_broadcast,
    "broadcast_": _functional_broadcast,
    "isend": _functional_send,
    "irecv": _functional_receive,
    "batch_p2p_ops": _functional_batch,
}


def _listed(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list | tuple) else (value,)
