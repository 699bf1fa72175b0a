"""What the recorder writes down: operator calls as they happened, on memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from graphguard.ir.graph import Size

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
    """A process group: its global ranks in group order, and the name that tells it from others of the same ranks."""

    ranks: tuple[int, ...]
    name: str = ""


@dataclass(frozen=True, slots=True)
class Opaque:
    """An argument without a value of its own in the graph, such as a generator or a callable, by description."""

    text: str


@dataclass(slots=True)
class Event:
    """One call.

    ``op`` is PyTorch's operator object, or one of ``leaf``, ``constant``, ``output``, ``label``, ``assume``, or ``wait`` for the collectives that
    ``args`` holds the events of: all, where it is empty.  ``waited``: the program waits for this collective at once.
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


def refs_in(value: Any) -> list[Ref]:
    """Every tensor in nested lists, tuples and dicts of an event."""
    if isinstance(value, Ref):
        return [value]
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, list | tuple):
        return [ref for item in value for ref in refs_in(item)]
    return []
