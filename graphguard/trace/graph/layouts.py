"""How the tensors of a collective lie in memory: the order of their elements there, which is what is exchanged, and views that have none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.utils._python_dispatch import _disable_current_modes

from graphguard.ir import Span
from graphguard.trace.calls.collectives import ADDED, CLONED, CONTIGUOUS, COPIED, MEMORY, Call
from graphguard.trace.calls.events import Geometry, Ref
from graphguard.trace.graph.races import overlap
from graphguard.trace.graph.view_fixes import contiguous, copied, operand
from graphguard.trace.graph.views import count, row_major, whole
from graphguard.trace.source.errors import UnfitMemoryError

Order = tuple[int, ...]
COPIES: Final = "gloo copies the views that a collective is given where it does not work on memory; NCCL takes no view that is not contiguous"


@dataclass(slots=True)
class Backend:
    """What exchanges the tensors: NCCL or gloo; ``copied_views``: views were exchanged that gloo copies."""

    is_nccl: bool
    copied_views: bool = False


class UnfitViewError(UnfitMemoryError):
    """A view that a collective cannot work on; ``taken``: it would be filled."""

    def __init__(self, call: Call, ref: Ref, headline: str, found: str, *, taken: bool) -> None:
        super().__init__("collective-mismatch", headline)
        self._kind = call.kind
        self._taken = taken
        self._ref = ref
        self._found = found

    def tell(self, span: Span | None) -> None:
        """Name the tensor as it is written at the call."""
        self.span = span
        name = operand(span, self._kind, taken=self._taken)
        headline = self.message.format("a tensor here" if name is None else f"'{name}'")
        self.message = f"{headline}\nfound: {_shown(self._ref)}; {self._found}"
        self.mendings = contiguous(span, self._kind, taken=self._taken)


class SharedMemoryError(UnfitMemoryError):
    """What a collective fills is what it reads."""

    def __init__(self, call: Call) -> None:
        super().__init__("wrong-relation", "")
        self._kind = call.kind

    def tell(self, span: Span | None) -> None:
        """Name the tensors as they are written at the call."""
        self.span = span
        filled, read = (operand(span, self._kind, taken=taken) for taken in (True, False))
        names = "a tensor here" if filled is None else f"'{filled}'"
        self.message = (
            f"{self._kind} fills {names} while it still reads the same memory\n"
            "found: it is overwritten before all of it was sent; what arrives depends on how far the others are"
        )
        self.mendings = copied(span, self._kind) if read is not None else ()


def order_of(ref: Ref, way: str) -> Order:
    """The dims of a tensor as its elements lie in memory, outermost first; empty where that is row by row, or does not matter."""
    if way in (COPIED, ADDED) or not _is_known(ref):
        return ()
    order = row_major(_clone_of(ref.geometry) if way == CLONED else ref.geometry)
    return () if order is None or order == tuple(range(len(order))) else order


def _clone_of(geometry: Geometry) -> Geometry:
    """How a clone lies: densely, its dims in the order in which they lay."""
    if row_major(geometry) is not None:
        return geometry
    _, sizes, strides, dtype = geometry
    with _disable_current_modes():
        like = torch.empty_strided([whole(n) for n in sizes], [whole(step) for step in strides], device="meta")
        return (0, sizes, torch.empty_like(like).stride(), dtype)


def check_layouts(call: Call, name: str, rank: int) -> bool:
    """Raise :class:`UnfitMemoryError` for views that no back end takes as what they show; whether another back end than gloo would have refused one that is copied."""
    copies = False
    if call.given not in (COPIED, ADDED) and call.kind in ("all_to_all", "scatter", "reduce_scatter"):
        own = None if call.flat else call.group.index(rank)
        for at, read in enumerate(call.reads):
            in_place = (read.key,) if at == own else _own_place(call, read, rank)
            if any(_share(read, ref) and ref.key not in in_place for ref in call.writes):
                raise SharedMemoryError(call)
    for refs, way, taken in ((call.reads, call.given, False), (call.writes, call.taken, True)):
        for ref in refs:
            reason = _refused(ref, way, call, taken=taken)
            if reason is not None:
                raise UnfitViewError(call, ref, *reason, taken=taken)
            copies |= way in (COPIED, CLONED, ADDED) and name.startswith("c10d::") and not _is_contiguous(ref)
    return copies


def _own_place(call: Call, read: Ref, rank: int) -> tuple[Any, ...]:
    """The part of a flat operand that a rank's own result may be: where back ends reduce and scatter in place (NCCL: ``recvbuff == sendbuff + rank * recvcount``)."""
    if not call.flat or call.kind != "reduce_scatter" or not _is_known(read) or not _is_contiguous(read):
        return ()
    (result,) = call.writes
    start, at = read.geometry[0], result.geometry[0]
    if not isinstance(start, int) or not isinstance(at, int) or not _is_contiguous(result):
        return ()
    return (result.key,) if at == start + call.group.index(rank) * count(result.geometry) else ()


def _refused(ref: Ref, way: str, call: Call, *, taken: bool) -> tuple[str, str] | None:
    if not _is_known(ref):
        return None
    if way == CONTIGUOUS and not _is_contiguous(ref):
        return (
            f"{call.kind} takes contiguous tensors only, and {{}} is none",
            "PyTorch raises an error here on gloo, and NCCL sends and fills memory in its order, which is not that of the elements",
        )
    if way == MEMORY and row_major(ref.geometry) is None:
        verb = "fills" if taken else "takes"
        return (
            f"{call.kind} works on memory, and {{}} is a view that is not dense there",
            f"NCCL refuses it, and gloo {verb} as many elements as lie one after the other, which are others",
        )
    return None


def _share(one: Ref, other: Ref) -> bool:
    return one.storage == other.storage and overlap(one.geometry, other.geometry)


def _is_contiguous(ref: Ref) -> bool:
    if not _is_known(ref):
        return True
    order = row_major(ref.geometry)
    return order is not None and order == tuple(range(len(order)))


def _is_known(ref: Ref) -> bool:
    return all(isinstance(n, int) for n in (*ref.geometry[1], *ref.geometry[2]))


def _shown(ref: Ref) -> str:
    _, sizes, strides, _ = ref.geometry
    return f"shape {_listed(sizes)}, strides {_listed(strides)}"


def _listed(numbers: tuple[object, ...]) -> str:
    return f"({', '.join(map(str, numbers))}{',' if len(numbers) == 1 else ''})"
