"""Collectives on Python objects.

Objects travel between the ranks of one check by pickle, as they do in PyTorch, from one process of the user's to another.  Where a rank's object cannot be
pickled, the others are assumed to hold the same one, and the capture says so.
"""

from __future__ import annotations

import functools
import hashlib
import pickle
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch.utils._python_dispatch import _disable_current_modes

from graphguard.ir.graph import Constant, TensorType
from graphguard.trace import state

SYMMETRIC = "object collectives: every rank is assumed to contribute an object like this rank's"


def install() -> None:
    """Replace the object collectives while a program is recorded."""
    for function in (
        all_gather_object,
        gather_object,
        broadcast_object_list,
        scatter_object_list,
        send_object_list,
        recv_object_list,
    ):
        wrapped = _when_traced(function, getattr(c10d, function.__name__))
        setattr(c10d, function.__name__, wrapped)
        setattr(dist, function.__name__, wrapped)


def _when_traced(replacement: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def choose(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs) if state.current_recorder() is None else replacement(*args, **kwargs)

    return choose


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Every rank's object, in group order."""
    members = _members(group)
    found = _exchange("objects", members, members, obj)
    object_list[: len(members)] = [found[member] for member in members]


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,  # noqa: ARG001  # PyTorch's signature
    group: Any = None,
    group_dst: int | None = None,  # noqa: ARG001  # PyTorch's signature
) -> None:
    """Every rank's object, on the destination."""
    members = _members(group)
    found = _exchange("objects", members, members, obj)
    if object_gather_list is not None:
        object_gather_list[: len(members)] = [found[member] for member in members]


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,  # noqa: ARG001  # PyTorch's signature
    group_src: int | None = None,
) -> None:
    """The source's objects, on every rank."""
    members = _members(group)
    root = _root(members, src, group_src)
    found = _exchange("objects", members, (root,), list(object_list))
    object_list[:] = found[root]


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    """The source's object for this rank."""
    members = _members(group)
    root = _root(members, src, group_src)
    found = _exchange("objects", members, (root,), scatter_object_input_list)
    if found[root] is not None:
        scatter_object_output_list[0] = found[root][members.index(dist.get_rank())]


def send_object_list(
    object_list: list[Any],
    dst: int | None = None,  # PyTorch's signature
    group: Any = None,
    device: Any = None,  # noqa: ARG001  # PyTorch's signature
    group_dst: int | None = None,  # PyTorch's signature
    use_batch: bool = False,  # noqa: ARG001  # PyTorch's signature
) -> None:
    """Contribute objects to one peer."""
    peer = _root(_members(group), dst, group_dst)
    me = dist.get_rank()
    name = _ledger().name("send", (me, peer), peer, -1)
    _ledger().offer(name, (me,), _packed(list(object_list)))


def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,  # noqa: ARG001  # PyTorch's signature
    group_src: int | None = None,
    use_batch: bool = False,  # noqa: ARG001  # PyTorch's signature
) -> int:
    """The objects that one peer contributes."""
    peer = _root(_members(group), src, group_src)
    name = _ledger().name("recv", (peer, dist.get_rank()), peer, -1)
    answers = _ledger().answers.get(name)
    if answers is None:
        _ledger().need()
    else:
        object_list[:] = _unpacked(answers[peer], list(object_list))
    return peer


def _exchange(kind: str, members: tuple[int, ...], needed: tuple[int, ...], obj: Any) -> dict[int, Any]:
    """The objects of the needed ranks; ends the recording where they are still to be asked."""
    me = dist.get_rank()
    name = _ledger().name(kind, members, -1, 0)
    if me in needed:
        _ledger().offer(name, needed, _packed(obj))
        if needed == (me,):
            return {me: obj}
    answers = _ledger().answers.get(name)
    if answers is None:
        _ledger().need()
        return {}
    return {rank: obj if rank == me else _unpacked(answers[rank], obj) for rank in needed}


def _packed(obj: Any) -> tuple[Constant, ...]:
    try:
        with _disable_current_modes():
            data = pickle.dumps(obj)
    except (pickle.PicklingError, AttributeError, TypeError, RuntimeError, NotImplementedError):
        return ()  # the others are told that there is something they cannot have
    kind = TensorType((len(data),), "uint8")
    return (Constant(kind, hashlib.sha256(data).hexdigest(), data),)


def _unpacked(operands: tuple[Constant, ...], own: Any) -> Any:
    if not operands or operands[0].data is None:
        recorder = state.current_recorder()
        if recorder is not None:
            recorder.assumed.add(SYMMETRIC)
        return own
    with _disable_current_modes():
        return pickle.loads(operands[0].data)  # noqa: S301  # written by this check's own ranks, as torch does


def _members(group: Any) -> tuple[int, ...]:
    return tuple(dist.get_process_group_ranks(group or dist.group.WORLD))


def _root(members: tuple[int, ...], rank: int | None, group_rank: int | None) -> int:
    if group_rank is not None:
        return members[group_rank]
    return members[0] if rank is None else rank


def _ledger() -> Any:
    recorder = state.current_recorder()
    assert recorder is not None
    return recorder.ledger
