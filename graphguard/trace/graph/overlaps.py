"""Calls that write memory which they also read through another view, or write several times.

PyTorch refuses some of them and goes on with others, whose numbers then depend on the order in which its loop goes over the elements.  Which is which differs from operator to
operator, and from layout to layout, so it is asked: the very call runs on small real tensors that lie in memory as the program's do, once as it is and once reading copies.
Tensors without elements, which programs are recorded with, check none of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import torch
from torch.utils._python_dispatch import _disable_current_modes

from graphguard.ir import Span
from graphguard.ir.graph import DType, Sym
from graphguard.ops import traits_of
from graphguard.trace.calls.events import Event, Geometry, Ref, refs_in
from graphguard.trace.calls.kinds import Kind
from graphguard.trace.graph.races import overlap
from graphguard.trace.graph.view_fixes import cloned, said
from graphguard.trace.graph.views import dtype_of, itemsize, overlaps, whole
from graphguard.trace.source.errors import UnfitMemoryError

_MANY: Final = 1 << 26  # bytes: what lies further apart is neither marked nor run
_AT_ONCE: Final = frozenset(("fill_", "zero_"))  # all elements get the same: it does not matter how often


def check_overlaps(event: Event, kind: Kind) -> None:
    """Raise ``TracingError`` where a call writes what it reads, or one element of memory as several, unless PyTorch gives the numbers that copies would."""
    if not kind.written or kind.is_foreign or kind.changes_views or not _meets_itself(event, kind):
        return
    with _disable_current_modes(), torch.no_grad():
        refused, differs = _tried(event, kind)
    if refused is not None:
        raise UnfitOperandError("trace-error", f"{refused}\nPyTorch raises an error here")
    if differs or _sums_what_it_overwrites(event, kind):
        raise UnfitOperandError("wrong-relation", _WRITTEN_BEFORE)
    if any(_is_partial(pair) for pair in _meetings(event, kind)):
        raise UnfitOperandError("trace-error", _BY_ORDER)


_WRITTEN_BEFORE: Final = (
    "{} reads elements that it has written before, through another view of the same memory\n"
    "found: PyTorch does not refuse it, and its numbers depend on the order of a loop"
)
_BY_ORDER: Final = (
    "{} writes elements that it reads through another view of the same memory\n"
    "found: PyTorch does not refuse it; here its loop reads each of them before it writes it, and on another device it need not"
)


class UnfitOperandError(UnfitMemoryError):
    """A call that writes what it reads."""

    def tell(self, span: Span | None) -> None:
        """Name the call as it is written."""
        self.span = span
        self.message = self.message.replace("{}", said(span), 1)
        self.mendings = cloned(span)


def once(ref: Ref) -> Ref:
    """A tensor with every element of an expanded one only once: what is written to all of them is written there."""
    offset, sizes, strides, dtype = ref.geometry
    if not any(step == 0 and n != 1 for n, step in zip(sizes, strides, strict=True)) or 0 in sizes:
        return ref
    fewer = tuple(1 if step == 0 else n for n, step in zip(sizes, strides, strict=True))
    return Ref(ref.storage, (offset, fewer, strides, dtype))


# -- which calls ---------------------------------------------------------------------------------------------------------
def _meets_itself(event: Event, kind: Kind) -> bool:
    if kind.short_name not in _AT_ONCE and any(overlaps(ref.geometry) for ref in event.written):
        return True
    return any(True for _ in _meetings(event, kind))


def _meetings(event: Event, kind: Kind) -> Iterator[tuple[Ref, Ref]]:
    """What is written and read at once: one tensor, where the operator does more than go through the elements, and tensors that share some."""
    written: dict[int, list[Ref]] = {}
    for ref in event.written:
        written.setdefault(ref.storage, []).append(ref)
    for read in _only_read(event, kind):
        for ref in written.get(read.storage, ()):
            if ref.geometry == read.geometry:
                if torch.Tag.pointwise not in kind.operator.tags and kind.short_name != "copy_":
                    yield ref, read
            elif _share(ref.geometry, read.geometry) and not _is_element_wise(kind, ref.geometry, read.geometry):
                yield ref, read


def _sums_what_it_overwrites(event: Event, kind: Kind) -> bool:
    """Whether a product of matrices is written over a factor: how much of a factor a kernel has read by then depends on the processor and on the sizes."""
    traits = traits_of(f"aten.{kind.short_name.rstrip('_')}.default")
    if not traits.contracts:
        return False
    factors = refs_in(event.args[1:] if traits.product else event.args)  # the product alone may be added in place
    written = {id(ref) for ref in event.written}
    return any(
        read.storage == ref.storage and _share(read.geometry, ref.geometry)
        for read in factors
        if id(read) not in written
        for ref in event.written
    )


def _is_partial(pair: tuple[Ref, Ref]) -> bool:
    return pair[0].geometry != pair[1].geometry


def _only_read(event: Event, kind: Kind) -> list[Ref]:
    places = {at for at, _ in kind.written}
    names = {name for _, name in kind.written}
    args = tuple(arg for at, arg in enumerate(event.args) if at not in places)
    return refs_in((args, {key: value for key, value in event.kwargs.items() if key not in names}))


def _share(a: Geometry, b: Geometry) -> bool:
    """Whether two tensors of one storage have an element in common."""
    if not overlap(a, b) or not _is_known(a, b):
        return overlap(a, b)
    size = itemsize(a)
    first, last = _extent(a, b)
    if itemsize(b) != size or last - first > _MANY // size:
        return True
    with _disable_current_modes():
        marks = torch.zeros(last - first, dtype=torch.bool, device="cpu")
        _shown(marks, a, first).fill_(True)
        return bool(_shown(marks, b, first).any())


def _is_element_wise(kind: Kind, written: Geometry, read: Geometry) -> bool:
    """Whether an operator that goes through the elements finds every one that both have at one index, where it is read before it is written."""
    if not (torch.Tag.pointwise in kind.operator.tags or kind.short_name == "copy_") or not _is_known(written, read):
        return False
    first, last = _extent(written, read)
    if itemsize(written) != itemsize(read) or last - first > _MANY // 8:
        return False
    with _disable_current_modes():
        marks = torch.full((last - first,), -1, dtype=torch.int64, device="cpu")
        target = _shown(marks, written, first)
        indices = torch.arange(target.numel(), dtype=torch.int64, device="cpu").reshape(target.shape)
        target.copy_(indices)
        try:
            found = _shown(marks, read, first).expand(target.shape)
        except RuntimeError:
            return False
        return bool(((found == -1) | (found == indices)).all())


def _is_known(*geometries: Geometry) -> bool:
    return all(isinstance(n, int) for each in geometries for n in (each[0], *each[1], *each[2]))


def _extent(*geometries: Geometry) -> tuple[int, int]:
    """The first element of all, and one past the last."""
    starts, ends = [], []
    for offset, sizes, strides, _ in geometries:
        reach = sum((whole(n) - 1) * whole(step) for n, step in zip(sizes, strides, strict=True) if n != 0)
        starts.append(whole(offset))
        ends.append(whole(offset) + reach + 1)
    return min(starts), max(ends)


def _shown(memory: torch.Tensor, geometry: Geometry, first: int) -> torch.Tensor:
    offset, sizes, strides, _ = geometry
    return memory.as_strided([whole(n) for n in sizes], [whole(step) for step in strides], whole(offset) - first)


# -- the trial -----------------------------------------------------------------------------------------------------------
def _tried(event: Event, kind: Kind) -> tuple[str | None, bool]:
    """Why PyTorch refuses a call, if it does, and whether what it writes is other than what it would write if it read copies."""
    refs = refs_in((event.args, event.kwargs))
    by_storage: dict[int, list[Geometry]] = {}
    for ref in refs:
        by_storage.setdefault(ref.storage, []).append(ref.geometry)
    if not all(_is_known(*each) and len({itemsize(one) for one in each}) == 1 for each in by_storage.values()):
        return None, False
    if any(
        (last - first) * itemsize(each[0]) > _MANY for each in by_storage.values() for first, last in [_extent(*each)]
    ):
        return None, False
    try:
        asked = _Trial(event, kind, by_storage).run(copies=False)
    except RuntimeError as error:
        text = str(error).splitlines()[0]
        return (f"RuntimeError: {text}", False) if "memory" in text else (None, False)
    except (TypeError, ValueError, NotImplementedError, IndexError):
        return None, False
    meant = _Trial(event, kind, by_storage).run(copies=True)
    alike = zip(asked, meant, strict=True)
    return None, not all(torch.allclose(a, b, rtol=1e-5, equal_nan=True) for a, b in alike)


class _Trial:
    """The tensors of a call, with elements."""

    def __init__(self, event: Event, kind: Kind, by_storage: dict[int, list[Geometry]]) -> None:
        self._event = event
        self._kind = kind
        self._shared = {ref.storage for ref in event.written}
        self._memory = {
            storage: (self._filled(storage, geometries), _extent(*geometries)[0])
            for storage, geometries in by_storage.items()
        }

    def _filled(self, storage: int, geometries: list[Geometry]) -> torch.Tensor:
        """Numbers that all differ, where memory is written; indices that are valid."""
        first, last = _extent(*geometries)
        dtype = getattr(torch, dtype_of(geometries[0]))
        if not dtype.is_floating_point and not dtype.is_complex and storage not in self._shared:
            return torch.zeros(last - first, dtype=dtype, device="cpu")
        steps = torch.arange(last - first, dtype=torch.float64, device="cpu")
        if not dtype.is_floating_point and not dtype.is_complex:
            return (steps % 2 if dtype == torch.bool else steps % 97).to(dtype)
        return (steps * 0.6180339887 % 1 + 0.5).to(dtype)

    def run(self, *, copies: bool) -> list[torch.Tensor]:
        """All memory that the call writes, after it; with ``copies``, what it only reads was copied before."""
        places = {at for at, _ in self._kind.written}
        names = {name for _, name in self._kind.written}
        args = [self._given(arg, copies=copies and at not in places) for at, arg in enumerate(self._event.args)]
        kwargs = {
            key: self._given(value, copies=copies and key not in names) for key, value in self._event.kwargs.items()
        }
        self._event.op(*args, **kwargs)
        return [self._memory[storage][0] for storage in sorted(self._shared)]

    def _given(self, value: Any, *, copies: bool) -> Any:
        if isinstance(value, Ref):
            memory, first = self._memory[value.storage]
            shown = _shown(memory, value.geometry, first)
            return shown.clone() if copies else shown
        if isinstance(value, tuple):
            return [self._given(item, copies=copies) for item in value]
        if isinstance(value, Sym):
            raise TypeError("a size that the data decides")
        return getattr(torch, value.name) if isinstance(value, DType) else value
