"""Collectives on memory as collectives on values, each in its one form (see :mod:`graphguard.ir.graph`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from graphguard.ir.graph import COMMUNICATOR, DType, Size, Sym, Var
from graphguard.ir.layouts import ORDERS, SUMMED
from graphguard.ops import aten, gg
from graphguard.trace.calls.collectives import ADDED, CLONED, Call, on_nccl
from graphguard.trace.calls.events import Members, Ref
from graphguard.trace.graph.builder import Builder
from graphguard.trace.graph.layouts import Backend, Order, check_layouts, order_of
from graphguard.trace.graph.memory import Memory
from graphguard.trace.graph.refusals import refused
from graphguard.trace.graph.views import type_of
from graphguard.trace.source.errors import TracingError

_REDUCTIONS = frozenset(("sum", "avg", "max", "min", "product"))


class Communication:
    """Translates one rank's collectives."""

    def __init__(self, builder: Builder, memory: Memory, rank: int, backend: Backend) -> None:
        self.builder = builder
        self.memory = memory
        self.rank = rank
        self.backend = backend
        self._scratch = -1
        self._to_self: dict[int, list[Var]] = {}

    def _all(self, refs: tuple[Ref, ...]) -> tuple[Var, ...]:
        return tuple(self.memory.read(ref) for ref in refs)

    def _flat(self, ref: Ref, way: str) -> Var:
        """A tensor that is cut, as its elements lie in memory."""
        value, order = self.memory.read(ref), order_of(ref, way)
        if not order:
            return value
        kind = self.builder.types[value]
        lying = self.builder.one(aten.permute.default, (value, order), tuple(kind.shape[d] for d in order), kind.dtype)
        return self.builder.reshaped(lying, kind.shape)

    def _fill(self, ref: Ref, way: str, value: Var) -> None:
        """Write elements as they come into memory in its order."""
        shape, order = ref.shape, order_of(ref, way)
        if order:
            lying = self.builder.reshaped(value, tuple(shape[d] for d in order))
            back = tuple(order.index(d) for d in range(len(order)))
            value = self.builder.one(aten.permute.default, (lying, back), shape, self.builder.types[lying].dtype)
        self.memory.write(ref, value)

    def _notes(self, call: Call) -> dict[str, Any]:
        """Which communicator it is, and how its tensors that are not cut lie in memory, where one of them does not lie row by row: :mod:`graphguard.ir.layouts` reads it."""
        cut: list[Order] = [()] * len(call.group)  # its parts lie in the order of memory
        given = cut if call.flat and call.kind != "all_gather" else [order_of(ref, call.given) for ref in call.reads]
        taken = (
            cut if call.flat and call.kind != "reduce_scatter" else [order_of(ref, call.taken) for ref in call.writes]
        )
        if call.given == CLONED:
            given[call.group.index(self.rank)] = taken[0]  # to what is copied into the result the others' are added
        orders: dict[str, Any] = {ORDERS: (tuple(given), tuple(taken))} if any(given) or any(taken) else {}
        summed = order_of(call.reads[0], CLONED) if call.given == ADDED else ()
        if summed:
            orders = {SUMMED: (call.reads[0].shape, summed)}
        return {**_which(call.earlier), **orders}

    def translate(self, call: Call, name: str) -> None:
        """Emit one collective, an operator of this name, and write what it changes."""
        reason = refused(call)
        if reason is not None:
            raise TracingError("trace-error", f"{reason}\nPyTorch raises an error here")
        if self.backend.is_nccl and name.startswith("c10d::"):
            call = on_nccl(call)
        if len(call.group) > 1 or self.backend.is_nccl:
            self.backend.copied_views |= check_layouts(call, name, self.rank)
        if call.reduce.startswith("premul_sum:"):
            call = self._premultiplied(call, float(call.reduce.partition(":")[2]))
        if call.reduce and call.reduce not in _REDUCTIONS:
            raise TracingError("unsupported-operator", f"the reduction {call.reduce} is not traced")
        if len(call.group) == 1 and call.kind not in ("send", "recv"):
            self._alone(call)
            return
        _CALLS[call.kind](self, call)

    def _alone(self, call: Call) -> None:
        """In a group of one, a rank keeps what it gives."""
        for source, target in zip(call.reads, call.writes, strict=True):
            if order_of(source, call.given) == order_of(target, call.taken):
                self.memory.write(target, self.builder.shaped(self.memory.read(source), *type_of(target)))
            else:
                self._fill(target, call.taken, self._flat(source, call.given))

    def _premultiplied(self, call: Call, factor: float) -> Call:
        """A sum whose operands are scaled first: the scaled operands in memory of their own."""
        scaled = []
        for ref in call.reads:
            value = self.builder.one(aten.mul.Scalar, (self.memory.read(ref), factor), *type_of(ref))
            self._scratch -= 1
            scaled.append(Ref(self._scratch, ref.geometry))
            self.memory.define(scaled[-1], value)
        return replace(call, reads=tuple(scaled), reduce="sum")

    def _broadcast(self, call: Call) -> None:
        """Bits of another type, as programs send what a backend has no type for, arrive as the value that they are of."""
        value = self.memory.read(call.reads[0])
        source = self.builder.bits_of(value)
        if source is None:
            self._in_place(call)
            return
        kind = self.builder.types[source]
        orders = self._notes(call)
        arrived = self.builder.one(gg.broadcast, (source, call.peer, call.group), kind.shape, kind.dtype, **orders)
        shape, dtype = type_of(call.writes[0])
        self.memory.write(call.writes[0], self.builder.one(aten.view.dtype, (arrived, DType(dtype)), shape, dtype))

    def _in_place(self, call: Call) -> None:
        args: tuple[Any, ...] = (self.memory.read(call.reads[0]),)
        args += {"all_reduce": (call.reduce,), "broadcast": (call.peer,), "reduce": (call.peer, call.reduce)}[call.kind]
        value = self.builder.one(f"gg.{call.kind}", (*args, call.group), *type_of(call.reads[0]), **self._notes(call))
        self.memory.write(call.writes[0], self.builder.shaped(value, *type_of(call.writes[0])))

    def _all_gather(self, call: Call) -> None:
        mine = self.memory.read(call.reads[0])
        kind = self.builder.types[mine]
        types = [type_of(ref) for ref in call.writes] if not call.flat else [(kind.shape, kind.dtype)] * len(call.group)
        values = self.builder.emit(gg.all_gather, (mine, call.group), types, **self._notes(call))
        if not call.flat:
            for ref, value in zip(call.writes, values, strict=True):
                self.memory.write(ref, value)
            return
        self._fill(call.writes[0], call.taken, self.builder.joined(values, *type_of(call.writes[0])))

    def _reduce_scatter(self, call: Call) -> None:
        target = call.writes[0]
        parts = self._cut(call, target) if call.flat else self._all(call.reads)
        arguments = (parts, call.reduce, call.group)
        value = self.builder.one(gg.reduce_scatter, arguments, *type_of(target), **self._notes(call))
        self.memory.write(target, value)

    def _cut(self, call: Call, target: Ref) -> tuple[Var, ...]:
        """A flat operand as one tensor of the result's shape per member."""
        whole = self._flat(call.reads[0], call.given)
        shape, dtype = type_of(target)
        kind = self.builder.types[whole]
        members = len(call.group)
        if shape and kind.shape[1:] == shape[1:] and len(kind.shape) == len(shape):
            return self.builder.emit(aten.split.Tensor, (whole, shape[0], 0), [(shape, dtype)] * members)
        whole = self.builder.reshaped(whole, (members, *shape))
        return self.builder.emit(aten.unbind.int, (whole, 0), [(shape, dtype)] * members)

    def _all_to_all(self, call: Call) -> None:
        if not call.flat:
            values = self.builder.emit(
                gg.all_to_all,
                (self._all(call.reads), call.group),
                [type_of(ref) for ref in call.writes],
                **self._notes(call),
            )
            for ref, value in zip(call.writes, values, strict=True):
                self.memory.write(ref, value)
            return
        whole = self._flat(call.reads[0], call.given)
        sent = self._split_sizes(call.read_splits, call.reads[0], len(call.group))
        received = self._split_sizes(call.write_splits, call.writes[0], len(call.group))
        rest, dtype = call.reads[0].shape[1:], type_of(call.reads[0])[1]
        pieces = self.builder.emit(aten.split_with_sizes.default, (whole, sent, 0), [((n, *rest), dtype) for n in sent])
        types = [((n, *call.writes[0].shape[1:]), dtype) for n in received]
        values = self.builder.emit(gg.all_to_all, (pieces, call.group), types, **_which(call.earlier))
        self._fill(call.writes[0], call.taken, self.builder.joined(values, *type_of(call.writes[0])))

    @staticmethod
    def _split_sizes(splits: tuple[Size, ...], ref: Ref, members: int) -> tuple[Size, ...]:
        if splits:
            return splits
        extent = ref.shape[0]
        part = extent // members if isinstance(extent, int) else Sym(f"({extent.expr})//{members}")
        return (part,) * members

    def _gather(self, call: Call) -> None:
        types = [type_of(ref) for ref in call.writes]
        arguments = (self.memory.read(call.reads[0]), call.peer, call.group)
        values = self.builder.emit(gg.gather, arguments, types, **self._notes(call))
        for ref, value in zip(call.writes, values, strict=True):
            self.memory.write(ref, value)

    def _scatter(self, call: Call) -> None:
        target = call.writes[0]
        arguments = (self._all(call.reads), call.peer, call.group)
        value = self.builder.one(gg.scatter, arguments, *type_of(target), **self._notes(call))
        self.memory.write(target, value)

    def _send(self, call: Call) -> None:
        value = self.memory.read(call.reads[0])
        if call.peer == self.rank:
            self._to_self.setdefault(call.tag, []).append(value)
        else:
            arguments = (value, call.peer, call.tag, call.group)
            self.builder.emit(gg.send, arguments, [], **self._blocking(), **self._notes(call))

    def _receive(self, call: Call) -> None:
        target = call.writes[0]
        if call.peer == self.rank and self._to_self.get(call.tag):
            self.memory.write(target, self._to_self[call.tag].pop(0))
        else:
            arguments = (call.peer, call.tag, call.group)
            orders = self._notes(call)
            value = self.builder.one(gg.recv, arguments, *type_of(target), **self._blocking(), **orders)
            self.memory.write(target, value)

    def _blocking(self) -> dict[str, Any]:
        return {"blocking": True} if self.builder.at.kwargs.get("blocking") else {}

    def _barrier(self, call: Call) -> None:
        self.builder.emit(gg.barrier, (call.group,), [], **_which(call.earlier))

    def meet(self, call: str, among: str, group: Members) -> None:
        """The members of a group wait for each other where they make it."""
        if self.rank in group.ranks and len(group.ranks) > 1:
            self.builder.emit(f"gg.{call}", (among, group.ranks), [], **_which(group.earlier))


def _which(earlier: int) -> dict[str, Any]:
    """Which of several groups of the same ranks it is."""
    return {COMMUNICATOR: earlier + 1} if earlier else {}


_CALLS: dict[str, Callable[[Communication, Call], None]] = {
    "all_reduce": Communication._in_place,  # noqa: SLF001
    "broadcast": Communication._broadcast,  # noqa: SLF001
    "reduce": Communication._in_place,  # noqa: SLF001
    "all_gather": Communication._all_gather,  # noqa: SLF001
    "reduce_scatter": Communication._reduce_scatter,  # noqa: SLF001
    "all_to_all": Communication._all_to_all,  # noqa: SLF001
    "gather": Communication._gather,  # noqa: SLF001
    "scatter": Communication._scatter,  # noqa: SLF001
    "send": Communication._send,  # noqa: SLF001
    "recv": Communication._receive,  # noqa: SLF001
    "barrier": Communication._barrier,  # noqa: SLF001
}
