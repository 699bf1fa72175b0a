"""Programs that touch a tensor while an asynchronous collective is still at it.

From the call until its handle is waited for, a collective may write its results and read its operands at any moment: whoever reads the former, or writes
the latter, gets what nobody can say.  Events are followed in the program's order; every call that was not waited for at once is *pending*.

Collectives of one group run in the order of their calls, as NCCL runs them on one stream: one may follow the other without a wait, and waiting for the later one
is waiting for both.  Gloo does not promise that, so a program that asked for it is not granted it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from graphguard.ir.spans import Span
from graphguard.trace.calls.collectives import Call, calls_of
from graphguard.trace.calls.events import Event, Geometry, Members, Ref
from graphguard.trace.graph.views import itemsize, whole
from graphguard.trace.graph.wait_fixes import awaited, is_dropped
from graphguard.trace.source.errors import TracingError
from graphguard.trace.source.provenance import Stacks

IN_ORDER = "collectives of one process group complete in the order of their calls, as NCCL's do"
_MESSAGES = frozenset(("send", "recv"))
# Operators that look at shapes alone, and those that move handles about.
_UNREAD = frozenset(
    (
        "set_", "resize_", "record_stream", "_assert_tensor_metadata", "is_same_size", "_has_compatible_shallow_copy_type",
        "resize_storage_bytes_", "_version", "requires_grad_", "wait_tensor", "_wrap_tensor_autograd", "detach", "detach_", "alias",
        "empty_like", "new_empty", "new_empty_strided", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones",
        "new_full", "rand_like", "randn_like", "randint_like",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Access:
    """What one call touches.  ``order`` names the queue that it runs in; None for what the program itself runs."""

    reads: tuple[Ref, ...]
    writes: tuple[Ref, ...]
    order: Any = None


@dataclass(slots=True)
class _Pending:
    """A collective that was not waited for; ``overtaken``: one that comes after it in the same queue was."""

    event: Event
    touched: list[_Access]
    overtaken: bool = False

    @property
    def order(self) -> Any:
        """The queue that it runs in."""
        return self.touched[0].order


class Races:
    """Collectives that the program has not waited for, at the point that it has reached."""

    def __init__(self, stacks: Stacks, in_order: bool) -> None:
        self._stacks = stacks
        self._in_order = in_order
        self._pending: dict[int, _Pending] = {}
        self._over: list[Event] = []
        self.relies_on_order = False

    @property
    def has_pending(self) -> bool:
        """Whether any collective may still be at it."""
        return bool(self._pending)

    def over(self) -> list[Event]:
        """The collectives that the program has waited for since this was last asked."""
        over, self._over = self._over, []
        return over

    def under_way(self) -> list[Event]:
        """Those that it has not waited for."""
        return [pending.event for pending in self._pending.values()]

    def step(self, event: Event) -> None:
        """Follow one event; raises ``TracingError`` at a race."""
        if event.op == "wait":
            self._wait(event.args)
            return
        if not self._pending and (event.kind is None or not event.kind.may_communicate):
            return
        calls = _calls(event)
        if self._pending:
            self._check(event, [_touched(event, call) for call in calls] if calls else [_accesses(event)])
        if not calls:
            if _name(event) == "wait_tensor":
                self._wait_for_memory(event.args[0])
        elif calls[0].kind == "barrier":
            self._barrier(_group(event))
        elif event.waited:
            self._overtake(_touched(event, calls[0]).order)
        else:
            self._pending[id(event)] = _Pending(event, [_touched(event, call) for call in calls])

    # -- waiting -------------------------------------------------------------------------------------------------------
    def _wait(self, waited: tuple[Event, ...]) -> None:
        """The program waits for these calls; for all there are, where it names none."""
        if not waited:
            self._over += self.under_way()
            self._pending.clear()
        for event in waited:
            pending = self._pending.get(id(event))
            if pending is not None:
                self._overtake(pending.order, pending)
                self._over.append(self._pending.pop(id(event)).event)

    def _overtake(self, order: Any, waited: _Pending | None = None) -> None:
        """What the same queue had to do before the call that is waited for (before now, where none is named) is done, too."""
        for pending in self._pending.values():
            if pending is waited:
                return
            if pending.order == order and self._in_order:
                pending.overtaken = True

    def _wait_for_memory(self, ref: Ref) -> None:
        for pending in list(self._pending.values()):
            if any(written.storage == ref.storage for access in pending.touched for written in access.writes):
                self._wait((pending.event,))

    def _barrier(self, group: Any) -> None:
        for key, pending in list(self._pending.items()):
            if pending.order[0] == group:
                self._over.append(self._pending.pop(key).event)

    # -- races ---------------------------------------------------------------------------------------------------------
    def _check(self, event: Event, accesses: list[_Access]) -> None:
        for pending in self._pending.values():
            for access in accesses:
                verb = next(filter(None, (_conflict(access, other) for other in pending.touched)), None)
                if verb is None:
                    continue
                if not pending.overtaken and not (self._in_order and access.order == pending.order):
                    raise self._race(event, pending.event, verb)
                self.relies_on_order = True

    def _race(self, event: Event, pending: Event, verb: str) -> TracingError:
        name = _calls(pending)[0].kind
        called = self._place(pending)
        what = "operand" if verb == "overwritten" else "result"
        before = f"the program ends and its {what} is returned" if event.op == "output" else f"its {what} is {verb}"
        handle = "wait() on its handle" if pending.op.namespace == "c10d" else "wait_tensor on its result"
        message = (
            f"nothing waits for the asynchronous {name} before {before}\n"
            f"found: a race: the {name} may run at any moment until it is waited for\n"
            f"fix: call {handle} before that"
        )
        met = None if event.op == "output" else self._place(event)
        place, related = self._place(event) or called, ((called, f"the {name} is started here"),) if called else ()
        if met is not None and called is not None and is_dropped(called):  # nobody can wait for it but there
            place, related = called, ((met, f"its {what} is {verb} here"),)
        found = TracingError("missing-wait", message, place, related)
        found.mendings = awaited(called, name, met) if pending.op.namespace == "c10d" else ()
        return found

    def _place(self, event: Event) -> Span | None:
        for index in (event.stack, event.forward):
            if index >= 0:
                return self._stacks.innermost(index).span
        return None


def _name(event: Event) -> str:
    kind = event.kind
    return "" if kind is None else kind.short_name


def _calls(event: Event) -> list[Call]:
    kind = event.kind
    if kind is None or not kind.may_communicate:
        return []
    return calls_of(kind.name, event.args, event.outs) or []


def _group(event: Event) -> Any:
    return next((value for value in event.args if isinstance(value, Members)), None)


def _touched(event: Event, call: Call) -> _Access:
    peer = call.peer if call.kind in _MESSAGES else None
    return _Access(call.reads, call.writes, (_group(event), call.kind if peer is not None else "", peer))


def _accesses(event: Event) -> _Access:
    """What an operator reads and writes of memory; a view of it does neither."""
    if isinstance(event.op, str):
        return _Access((event.outs,) if event.op == "output" else (), ())
    inputs = tuple(_refs((event.args, tuple(event.kwargs.values()))))
    kind = event.kind
    if kind is None:
        return _Access(inputs, ())
    if kind.short_name in _UNREAD or kind.changes_views:
        return _Access((), ())
    if not kind.is_mutable:
        made = {ref.storage for ref in _refs(event.outs)}
        is_view = bool(inputs) and made == {inputs[0].storage}
        return _Access((), ()) if is_view else _Access(inputs, ())
    written = tuple(ref for position, name in kind.written for ref in _refs(event.given(position, name)))
    only_written = {ref.key for ref in written} if kind.short_name in ("copy_", "fill_", "zero_") else set()
    return _Access(tuple(ref for ref in inputs if ref.key not in only_written), written)


def _refs(value: Any) -> Iterator[Ref]:
    if isinstance(value, Ref):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _refs(item)


def _conflict(access: _Access, underway: _Access) -> str | None:
    """How an access gets in the way of a collective that is under way: its result is ``read`` or ``changed``, its operand ``overwritten``."""
    if _meet(access.reads, underway.writes):
        return "read"
    if _meet(access.writes, underway.writes):
        return "changed"
    return "overwritten" if _meet(access.writes, underway.reads) else None


def _meet(some: Iterable[Ref], others: Iterable[Ref]) -> bool:
    return any(a.storage == b.storage and overlap(a.geometry, b.geometry) for a in some for b in others)


def overlap(a: Geometry, b: Geometry) -> bool:
    """Whether two tensors of one storage may share a byte; exact where one of them has no gaps."""
    if not all(isinstance(n, int) for g in (a, b) for n in (g[0], *g[1], *g[2])):
        return True
    if 0 in a[1] or 0 in b[1]:
        return False
    (low, high), (start, end) = _extent(a), _extent(b)
    if _distinct(b) * itemsize(b) == end - start:
        return _touches(*_steps(a), start, end)
    if _distinct(a) * itemsize(a) == high - low:
        return _touches(*_steps(b), low, high)
    return low < end and start < high


def _distinct(geometry: Geometry) -> int:
    """Number of elements; what is expanded counts once."""
    return prod(whole(n) for n, step in zip(geometry[1], geometry[2], strict=True) if step != 0)


def _steps(geometry: Geometry) -> tuple[int, list[tuple[int, int]], int]:
    """Where a tensor begins, in bytes, its dims as (extent, bytes between items), widest step first, and the bytes of an element."""
    size = itemsize(geometry)
    dims = [(whole(n), whole(step) * size) for n, step in zip(geometry[1], geometry[2], strict=True) if step != 0]
    return whole(geometry[0]) * size, sorted(dims, key=lambda dim: -dim[1]), size


def _extent(geometry: Geometry) -> tuple[int, int]:
    begin, dims, size = _steps(geometry)
    return begin, begin + sum((n - 1) * step for n, step in dims) + size


def _touches(begin: int, dims: list[tuple[int, int]], size: int, low: int, high: int) -> bool:
    """Whether any element lies in the bytes from ``low`` to ``high``."""
    end = begin + sum((n - 1) * step for n, step in dims) + size
    if end <= low or high <= begin:
        return False
    if not dims or (low <= begin and end <= high):
        return True
    (n, step), inner = dims[0], dims[1:]
    span = sum((m - 1) * width for m, width in inner) + size
    first = max(0, -(-(low - begin - span + 1) // step))
    last = min(n - 1, (high - 1 - begin) // step)
    return any(_touches(begin + i * step, inner, size, low, high) for i in range(first, last + 1))
