"""Carries what is known about values from the operands of a call to its results."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

import torch
import torch.distributed.distributed_c10d as c10d
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily

from graphguard.trace.calls.collectives import calls_of, refuse_unlike
from graphguard.trace.calls.constants import LARGEST, Constants, Knowledge, storage_of, tensors_in
from graphguard.trace.calls.kinds import Kind, kind_of
from graphguard.trace.calls.lockstep import Ledger
from graphguard.trace.record.exchange import communicate
from graphguard.trace.replace.arguments import SYMBOLS, members, with_group

EMPTY = frozenset(
    ("aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::new_empty_strided")
)
#: Operators that fill a tensor of another one's shape: with which number, or which of their arguments (a text) it is.
_FILLS: Final[dict[str, int | str]] = {
    "aten::zeros_like": 0,
    "aten::ones_like": 1,
    "aten::new_zeros": 0,
    "aten::new_ones": 1,
    "aten::full_like": "1",
    "aten::new_full": "2",
}

_LARGEST_DRAW: Final = 1 << 26  # numbers: less than a second, and a quarter of a gigabyte for as long


class Values:
    """Runs calls on the values of their operands, where all are known; ``pause`` keeps that out of the recording."""

    def __init__(
        self,
        mode: FakeTensorMode,
        constants: Constants,
        ledger: Ledger,
        pause: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._mode = mode
        self._constants = constants
        self._ledger = ledger
        self._pause = pause

    def known_of(self, kind: Kind, args: Any, operands: list[torch.Tensor]) -> Knowledge:
        """The least that is known about any operand; of a size that the data decides, nothing."""
        knowledge = self._constants.knowledge(operands)
        if knowledge != "unknown" and (kind.is_functional_collective or _has_symbol(args)):
            return "unknown"
        return knowledge

    def learn(self, kind: Kind, args: Any, kwargs: Any, out: Any, knowledge: Knowledge, before: list[int]) -> None:
        """Carry what is known from the operands, whose memory is ``before``, to the results."""
        if knowledge == "unknown" and kind.operator._schema.name in _FILLS:  # noqa: SLF001
            self._filled(kind.operator, args, out)
            return
        if kind.changes_views or (knowledge == "unknown" and not kind.is_mutable and not kind.is_functional_collective):
            return  # what is known is known of memory, whichever tensor shows it
        if kind.is_functional_collective:
            if kind.calls_collective:
                self.follow(kind.operator, grouped(kind.operator, args), out)
            return
        if knowledge in ("known", "unwritten"):
            results = [tensor for tensor in tensors_in(out) if isinstance(tensor, FakeTensor)]
            if all(self._small(tensor) for tensor in results):
                self._compute(kind.operator, args, kwargs, out, before)
                return
            knowledge = "unknown"
        fresh = [tensor for tensor in tensors_in(out) if knowledge == "pending" and storage_of(tensor) not in before]
        if kind.is_mutable:
            self._constants.forget(_written(kind.operator, args, kwargs), pending=knowledge == "pending")
        if fresh:
            self._constants.forget(fresh, pending=True)

    def follow(self, func: Any, args: Any, out: Any) -> None:
        """Carry known values through a collective, as far as all ranks know them."""
        read = tuple(with_group(arg) for arg in args)
        for call in calls_of(func._schema.name, read, out) or ():  # noqa: SLF001
            communicate(self._ledger, call, self._constants)

    def refuse(self, func: Any, args: Any, *, gloo: bool) -> bool:
        """Raise where a collective is called on tensors of several types, or of shapes that no backend takes; whether only gloo does not take them."""
        return refuse_unlike(func._schema.name, tuple(with_group(arg) for arg in args), gloo=gloo)  # noqa: SLF001

    def result(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator whose result depends on values, all known, on the values."""
        values = self._run(func, args, kwargs)
        if isinstance(values, torch.Tensor):
            return self._known_result(values)
        if isinstance(values, list | tuple):
            return type(values)(self._known_result(v) if isinstance(v, torch.Tensor) else v for v in values)
        return values

    def drawing(
        self, kind: Kind, args: Any, kwargs: Any, operands: list[torch.Tensor], out: Any
    ) -> Callable[[], torch.Tensor] | None:
        """What draws the numbers of a call in earnest, where they follow from nothing that is unknown; what it fills keeps its memory.

        Large ones, such as initial weights, are drawn so that the generator goes on from where it would: a script may draw the places of its samples after them.
        """
        if not isinstance(out, FakeTensor) or not _is_small(out, _LARGEST_DRAW):
            return None
        filled = kind.is_mutable or kind.short_name.endswith("_like")
        if len(operands) > 1 if filled else self._constants.knowledge(operands) != "known":
            return None
        given = (_unwritten(args[0]), *args[1:]) if filled else args
        return lambda: self._run(kind.operator, given, kwargs)

    def by_positions(
        self, args: Any, lift: Callable[[torch.Tensor], torch.Tensor], record: Callable[[Callable[[], Any]], Any]
    ) -> Any:
        """Known masks among the indices as the positions they select, so that the result's size is a number; ``lift`` records these.

        One number of another type fills where masks alone are true, and cannot be put at positions: ``record`` makes it one of the right type.
        """
        masks = [i for i, index in enumerate(args[1]) if isinstance(index, FakeTensor) and index.dtype == torch.bool]
        if not masks or not all(self._constants.is_known(args[1][i]) for i in masks):
            return args
        indices: list[Any] = []
        for i, index in enumerate(args[1]):
            if i not in masks:
                indices.append(index)
                continue
            with unset_fake_temporarily():
                positions = self._constants.real(index).nonzero(as_tuple=True)
            indices.extend(lift(position) for position in positions)
        put = args[2:]
        fills = put and _is_one(put[0]) and not any(put[1:]) and len(masks) == sum(each is not None for each in args[1])
        if fills and put[0].dtype is not args[0].dtype:
            put = (record(lambda: put[0].to(args[0].dtype)), *put[1:])
        return (args[0], indices, *put)

    def _compute(self, func: Any, args: Any, kwargs: Any, out: Any, before: list[int]) -> None:
        if func._schema.name in EMPTY:  # noqa: SLF001
            for tensor in (one for one in tensors_in(out) if one.numel() <= LARGEST):
                self._constants.unwritten(tensor)
            return
        written = _written(func, args, kwargs)
        is_open = self._constants.knowledge(tensors_in((args, kwargs))) == "unwritten"
        try:
            if is_open:
                self._constants.leave_open(written)
                others = tensors_in(self._run(func, args, kwargs, other=True))
            values = self._run(func, args, kwargs)
        except (RuntimeError, NotImplementedError, TypeError, IndexError, ValueError):
            # a kernel that this build lacks for real tensors: the value is not known, the program goes on
            self._constants.forget((*tensors_in(out), *written))
            return
        for place, (fake, value) in enumerate(zip(tensors_in(out), tensors_in(values), strict=False)):
            if storage_of(fake) not in before:
                self._constants.set(fake, value)
                if is_open:
                    self._constants.differently(fake, others[place])
        self._constants.settle(written)
        if kind_of(func).is_mutable:
            self._constants.wrote(written)

    def _filled(self, func: Any, args: Any, out: Any) -> None:
        """What is filled with a number is known, whatever its shape was taken from."""
        place = _FILLS[func._schema.name]  # noqa: SLF001
        number = place if not isinstance(place, str) else args[int(place)]
        if self._small(out) and isinstance(number, bool | int | float):
            with unset_fake_temporarily():
                self._constants.set(out, torch.full(tuple(out.shape), number, dtype=out.dtype, device="cpu"))

    def _small(self, tensor: torch.Tensor) -> bool:
        return _is_small(tensor, self._constants.largest) or self._constants.is_shown(tensor)

    def _run(self, func: Any, args: Any, kwargs: Any, *, other: bool = False) -> Any:
        with self._pause(), unset_fake_temporarily(), torch.no_grad():
            given = self._constants.substitute(tuple(args), other=other)
            return func(*given, **self._constants.substitute(kwargs, other=other))

    def _known_result(self, value: torch.Tensor) -> FakeTensor:
        with self._pause():
            fake = self._mode.from_tensor(value)
        self._constants.set(fake, value)
        return fake


def _is_small(tensor: torch.Tensor, largest: int) -> bool:
    return all(type(size) is int for size in tensor.shape) and tensor.numel() <= largest


def _is_one(tensor: torch.Tensor) -> bool:
    return all(type(size) is int and size == 1 for size in tensor.shape)


def _unwritten(tensor: torch.Tensor) -> torch.Tensor:
    """Memory of a tensor's shape and type."""
    with unset_fake_temporarily():
        return torch.empty(tuple(tensor.shape), dtype=tensor.dtype, device="cpu")


def grouped(func: Any, args: Any) -> Any:
    """The arguments of a functional collective with the group itself in place of its name."""
    position = next(i for i, arg in enumerate(func._schema.arguments) if arg.name == "group_name")  # noqa: SLF001
    if position >= len(args) or not isinstance(args[position], str):
        return args
    group = c10d._resolve_process_group(args[position])  # noqa: SLF001  # what the operator itself calls
    return (*args[:position], members(group), *args[position + 1 :])


def _has_symbol(value: Any) -> bool:
    for item in value:
        if isinstance(item, SYMBOLS):
            return True
        if isinstance(item, (list, tuple)) and _has_symbol(item):
            return True
    return False


def _written(func: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    values = (args[at] if at < len(args) else kwargs.get(name) for at, name in kind_of(func).written)
    return list(tensors_in(tuple(values)))
