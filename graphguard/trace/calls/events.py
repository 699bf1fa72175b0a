"""What the recorder writes down: operator calls as they happened, on memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torch._ops import OpOverload

from graphguard.ir.graph import Size
from graphguard.trace.calls.kinds import Kind, kind_of

Geometry: TypeAlias = tuple[Size, tuple[Size, ...], tuple[Size, ...], str]
"""Offset, sizes, strides, dtype: which elements of a storage a tensor shows; strides of dims of extent 1 are 0."""


class Ref:
    """A tensor as an operator saw it: a storage, by number, and where in it."""

    __slots__ = ("geometry", "storage")

    def __init__(self, storage: int, geometry: Geometry) -> None:
        self.storage = storage
        self.geometry = geometry

    @property
    def shape(self) -> tuple[Size, ...]:
        """Extents of the dims."""
        return self.geometry[1]

    @property
    def dtype(self) -> str:
        """Element type by name."""
        return self.geometry[3]

    @property
    def key(self) -> tuple[int, Geometry]:
        """Equal for tensors that show the same elements of the same memory."""
        return (self.storage, self.geometry)


@dataclass(frozen=True, slots=True)
class Members:
    """A process group: its global ranks in group order, and what tells it from others of the same ranks: PyTorch's name, and how many were made before."""

    ranks: tuple[int, ...]
    name: str = ""
    earlier: int = 0


@dataclass(frozen=True, slots=True)
class Opaque:
    """An argument without a value of its own in the graph, such as a generator or a callable, by description."""

    text: str


@dataclass(slots=True)
class Event:
    """One call.

    ``op`` is PyTorch's operator object, or one of ``leaf``, ``constant``, ``output``, ``number`` (an output that is one), ``label``, ``assume``, ``group`` (that is made), ``copy`` (of a segment), or ``wait`` for the
    collectives that ``args`` holds the events of: all, where it is empty.  ``waited``: the program waits for this collective at once. Of ``wait_tensor``: the program calls it, and not PyTorch of its own accord.
    ``kind`` is the operator's; None for what is no call, and for a higher-order operator.
    """

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outs: Any
    stack: int
    sequence: int | None
    module: str
    phase: str
    draw: tuple[str, int] | None = None
    forward: int = -1
    waited: bool = False
    kind: Kind | None = field(init=False)
    _written: list[Ref] | None = field(default=None, init=False)
    _read: frozenset[int] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.kind = kind_of(self.op) if isinstance(self.op, OpOverload) else None

    @property
    def written(self) -> list[Ref]:
        """The tensors that the call writes; of a collective, all that it is given."""
        if self._written is None:
            self._written = self._writes()
        return self._written

    def _writes(self) -> list[Ref]:
        kind = self.kind
        if kind is None:
            return []
        if kind.may_communicate:
            return refs_in((self.args, self.kwargs))
        return refs_in([self.given(at, name) for at, name in kind.written]) if kind.written else []

    @property
    def read(self) -> frozenset[int]:
        """The storages whose elements the call takes elsewhere."""
        if self._read is None:
            self._read = self._reads()
        return self._read

    def _reads(self) -> frozenset[int]:
        if isinstance(self.op, str):
            return frozenset()
        given = {ref.storage for ref in refs_in((self.args, self.kwargs))}
        if given and self.kind is not None and not self.kind.may_communicate:
            given.difference_update([ref.storage for ref in refs_in(self.outs)])  # views, and what is written in place
            given.difference_update([ref.storage for ref in self.written])
        return frozenset(given)

    def given(self, position: int, name: str) -> Any:
        """An argument by its place in the operator's schema."""
        return self.args[position] if position < len(self.args) else self.kwargs.get(name, ())


def refs_in(value: Any) -> list[Ref]:
    """Every tensor in nested lists, tuples and dicts of an event."""
    found: list[Ref] = []
    _gather(value, found)
    return found


def _gather(value: Any, found: list[Ref]) -> None:
    kind = type(value)
    if kind is Ref:
        found.append(value)
    elif kind is tuple or kind is list:
        for item in value:
            if type(item) in _HOLDERS:
                _gather(item, found)
    elif kind is dict:
        for item in value.values():
            _gather(item, found)


_HOLDERS = frozenset((Ref, tuple, list, dict))
