"""Collectives on Python objects.

Objects travel between the ranks of one check by pickle, as they do in PyTorch, from one process of the user's to another; the tensors in them travel as
recorded collectives, one after the other.  Where a rank's object cannot be pickled, the others are assumed to hold the same one, and the capture says so.
"""

from __future__ import annotations

import functools
import hashlib
import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from graphguard.ir.graph import Constant, TensorType
from graphguard.trace.calls import state
from graphguard.trace.replace import arguments
from graphguard.trace.replace.arguments import SYMBOLS
from graphguard.trace.source.errors import DATA_DEPENDENT, TracingError

Send = Callable[[torch.Tensor], torch.Tensor]
"""Brings a tensor that has the type of the sent one, and on the sender its elements, to where it is received."""

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
    found = _exchange(group, members, obj)
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
    found = _exchange(group, members, obj)
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
    found = _exchange(group, (root,), list(object_list))
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
    found = _exchange(group, (root,), scatter_object_input_list)
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
    name = _ledger().name("send", _communicator(group), peer, -1)
    packed = _packed(list(object_list))
    _ledger().offer(name, (me,), packed.operands)
    for tensor in packed.tensors:
        dist.send(tensor.detach().contiguous(), peer, group)


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
    name = _ledger().name("recv", _communicator(group), peer, -1)
    answers = _ledger().answer(name, (peer,))
    if answers is None:
        _ledger().need()
    else:

        def received(tensor: torch.Tensor) -> torch.Tensor:
            dist.recv(tensor, peer, group)
            return tensor

        object_list[:] = _unpacked(answers[peer], (), list(object_list), received)
    return peer


def _exchange(group: Any, needed: tuple[int, ...], obj: Any) -> dict[int, Any]:
    """The objects of the needed ranks; ends the recording where they are still to be asked."""
    me = dist.get_rank()
    name = _ledger().name("objects", _communicator(group), -1, 0)
    packed = _packed(obj) if me in needed else _Packed((), ())
    if me in needed:
        _ledger().offer(name, needed, packed.operands)
    answers = {me: packed.operands} if needed == (me,) else _ledger().answer(name, needed)
    if answers is None:
        _ledger().need()
        return {}
    found: dict[int, Any] = {}
    for rank in needed:

        def broadcast(tensor: torch.Tensor, root: int = rank) -> torch.Tensor:
            dist.broadcast(tensor, root, group)
            return tensor

        found[rank] = _unpacked(answers[rank], packed.tensors if rank == me else (), obj, broadcast)
    return found


@dataclass(frozen=True, slots=True)
class _Packed:
    """The types of an object's tensors and the object without them, no operand where it cannot be pickled; and these tensors."""

    operands: tuple[Constant, ...]
    tensors: tuple[torch.Tensor, ...]


class _Pickler(pickle.Pickler):
    """Leaves recorded tensors, and numbers that were read from such, out, and puts their places in the list of them there."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.tensors: list[Any] = []

    def persistent_id(self, obj: Any) -> int | None:
        if isinstance(obj, torch.SymBool):
            raise TracingError("trace-error", DATA_DEPENDENT)
        if not isinstance(obj, (FakeTensor, *SYMBOLS)):
            return None
        number = next((place for place, one in enumerate(self.tensors) if one is obj), len(self.tensors))
        if number == len(self.tensors):
            self.tensors.append(obj)
        return number


class _Unpickler(pickle.Unpickler):
    """Puts tensors in the places of their numbers."""

    def __init__(self, data: bytes, tensors: list[Any]) -> None:
        super().__init__(io.BytesIO(data))
        self._tensors = tensors

    def persistent_load(self, pid: int) -> Any:
        return self._tensors[pid]


def _packed(obj: Any) -> _Packed:
    file = io.BytesIO()
    pickler = _Pickler(file)
    try:
        with _disable_current_modes():
            pickler.dump(obj)
        numbers = [isinstance(one, SYMBOLS) for one in pickler.tensors]
        tensors = [_as_tensor(one) for one in pickler.tensors]
        types = pickle.dumps([(*_type_of(one), number) for one, number in zip(tensors, numbers, strict=True)])
    except (pickle.PicklingError, AttributeError, TypeError, RuntimeError, NotImplementedError):
        return _Packed((), ())  # the others are told that there is something they cannot have
    return _Packed(tuple(map(_constant, (types, file.getvalue()))), tuple(tensors))


def _as_tensor(one: Any) -> torch.Tensor:
    """A tensor, or a number that was read from one as a tensor without dims."""
    if isinstance(one, torch.Tensor):
        return one
    return torch.scalar_tensor(one, dtype=torch.float64 if isinstance(one, torch.SymFloat) else torch.int64)


def _type_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    if any(type(size) is not int for size in tensor.shape):
        raise TracingError("trace-error", DATA_DEPENDENT)
    parameter = isinstance(tensor, torch.nn.Parameter)
    return tuple(tensor.shape), tensor.dtype, str(tensor.device), tensor.requires_grad, parameter


def _constant(data: bytes) -> Constant:
    return Constant(TensorType((len(data),), "uint8"), hashlib.sha256(data).hexdigest(), data)


def _unpacked(operands: tuple[Constant, ...], tensors: tuple[torch.Tensor, ...], own: Any, send: Send) -> Any:
    """The object of these operands; ``tensors`` are those in it where it is this rank's own."""
    data = [operand.data for operand in operands if operand.data is not None]
    if len(data) != 2:
        recorder = state.current_recorder()
        if recorder is not None:
            recorder.assumed.add(SYMMETRIC)
        return own
    types = pickle.loads(data[0])  # noqa: S301  # written by this check's own ranks, as torch does
    received = [_received(kind, tensors[place] if tensors else None, send) for place, kind in enumerate(types)]
    with _disable_current_modes():
        return _Unpickler(data[1], received).load()


def _received(kind: tuple[Any, ...], own: torch.Tensor | None, send: Send) -> Any:
    """A tensor, or the number that it holds, as the sender had it."""
    shape, dtype, device, differentiable, parameter, number = kind
    with torch.no_grad():
        tensor = torch.empty(shape, dtype=dtype, device=device)
        if own is not None:
            tensor.copy_(own)
        tensor = send(tensor)
    if number:  # which its sender read from a tensor that nobody knows
        recorder = state.current_recorder()
        if recorder is not None:
            recorder.constants.forget((tensor,))
        return tensor.item()
    return torch.nn.Parameter(tensor, differentiable) if parameter else tensor.requires_grad_(differentiable)


def _members(group: Any) -> tuple[int, ...]:
    return tuple(dist.get_process_group_ranks(group or dist.group.WORLD))


def _communicator(group: Any) -> tuple[tuple[int, ...], int]:
    found = arguments.members(group or dist.group.WORLD)
    return found.ranks, found.earlier


def _root(members: tuple[int, ...], rank: int | None, group_rank: int | None) -> int:
    if group_rank is not None:
        return members[group_rank]
    return members[0] if rank is None else rank


def _ledger() -> Any:
    recorder = state.current_recorder()
    assert recorder is not None
    return recorder.ledger
