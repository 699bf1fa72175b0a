"""Storages as values: what every tensor shows, after every change through any other tensor of the same memory.

Each storage has a *root*, the tensor that first filled it.  Every other geometry is read by its recipe from another one, or, where only the strides say,
from the row-major flattening of the root.  A change through a view is put back along the same way, but not through a tensor of which several elements share
memory (``expand``, ``unfold``): there it is put back into the flattening, so that all of them change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from graphguard.ir.graph import DType, Var
from graphguard.ops import aten
from graphguard.trace.calls.events import Geometry, Ref
from graphguard.trace.graph.builder import Builder
from graphguard.trace.graph.views import BYTES, Recipe, count, dtype_of, itemsize, overlaps, row_major, whole
from graphguard.trace.source.errors import TracingError

_SHARED = (
    "elements that share memory are written all at once, and PyTorch does not say which of them is there in the end\n"
    "write to a clone of the tensor"
)


@dataclass(slots=True)
class Storage:
    """What is known of one storage: the values of the tensors that show it, and how others are made from these."""

    root: Geometry
    known: dict[Geometry, Var]
    recipes: dict[Geometry, Recipe] = field(default_factory=dict)
    seen: set[Geometry] = field(default_factory=set)
    flat: Var | None = None

    def see(self, geometry: Geometry) -> None:
        """This geometry is no news any more; the root's never is."""
        if geometry != self.root:
            self.seen.add(geometry)

    def copied(self) -> Storage:
        """The same, on its own."""
        return Storage(self.root, dict(self.known), dict(self.recipes), set(self.seen), self.flat)

    def renamed(self, table: Mapping[int, Var]) -> Storage:
        """The same of other values."""
        known = {geometry: table[var.id] for geometry, var in self.known.items()}
        flat = None if self.flat is None else table[self.flat.id]
        return Storage(self.root, known, dict(self.recipes), set(self.seen), flat)

    def is_like(self, other: Storage) -> bool:
        """Whether the same is known, whatever the values are."""
        if self.root != other.root or self.recipes != other.recipes or (self.flat is None) != (other.flat is None):
            return False
        return (
            len(self.known) == len(other.known) and self.known.keys() == other.known.keys() and self.seen == other.seen
        )

    def values(self) -> Iterator[Var]:
        """All values that are known."""
        yield from self.known.values()
        if self.flat is not None:
            yield self.flat

    def pairs(self, other: Storage) -> Iterator[tuple[Var, Var]]:
        """The values of this one, each with that of another that is like it."""
        for geometry, var in self.known.items():
            yield var, other.known[geometry]
        if self.flat is not None and other.flat is not None:
            yield self.flat, other.flat


class Memory:
    """All storages of one program, at the point that the translation has reached."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._storages: dict[int, Storage] = {}

    def storage(self, number: int) -> Storage | None:
        """What is known of a storage, by its number."""
        return self._storages.get(number)

    def put(self, number: int, storage: Storage) -> None:
        """From now on this is known of a storage."""
        self._storages[number] = storage

    def holds(self, ref: Ref) -> bool:
        """Whether the storage has been filled by anything yet."""
        return ref.storage in self._storages

    def reachable(self, ref: Ref) -> bool:
        """Whether the geometry has been seen, so that a further recipe would say nothing new."""
        storage = self._storages[ref.storage]
        return ref.geometry in storage.seen or ref.geometry in storage.known or ref.geometry == storage.root

    def learn(self, ref: Ref, recipe: Recipe) -> None:
        """How this geometry is made from another one of the same storage, which from now on must not be made from this one."""
        storage = self._storages[ref.storage]
        storage.recipes[ref.geometry] = recipe
        storage.see(ref.geometry)
        storage.see(recipe.base)

    def remember(self, ref: Ref, value: Var) -> None:
        """The value of a view, made already."""
        self._storages[ref.storage].known[ref.geometry] = value

    def define(self, ref: Ref, value: Var) -> None:
        """The result of an operator: fills a new storage, or all of an old one."""
        if ref.storage in self._storages:
            self.write(ref, value)
        else:
            self._storages[ref.storage] = Storage(ref.geometry, {ref.geometry: value})

    def read(self, ref: Ref) -> Var:
        """The value that a tensor shows now."""
        storage = self._storages.get(ref.storage)
        if storage is None:
            raise TracingError("trace-error", f"a tensor of shape {_shape(ref)} that no recorded operator made is read")
        return self._read(storage, ref.geometry)

    def write(self, ref: Ref, value: Var) -> None:
        """Replace what a tensor shows; everything else that shows the same memory changes with it."""
        storage = self._storages.get(ref.storage)
        if storage is None:
            self.define(ref, value)
        else:
            self._write(storage, ref.geometry, value)

    # -- one storage ---------------------------------------------------------------------------------------------------
    def _read(self, storage: Storage, geometry: Geometry) -> Var:
        value = storage.known.get(geometry)
        if value is None:
            recipe = storage.recipes.get(geometry)
            if recipe is None:
                value = self._read_strided(storage, geometry)
            else:
                value = recipe.apply(self._builder, self._read(storage, recipe.base), geometry)
            storage.known[geometry] = value
            storage.see(geometry)
        return value

    def _write(self, storage: Storage, geometry: Geometry, value: Var) -> None:
        if geometry == storage.root or self._outgrows(storage, geometry):
            if geometry != storage.root:
                storage.root = geometry
                storage.recipes.clear()
                storage.seen.clear()
            storage.known, storage.flat = {}, None
        else:
            recipe = storage.recipes.get(geometry)
            whole = None
            if recipe is not None and not overlaps(recipe.base):
                whole = recipe.put_back(self._builder, self._read(storage, recipe.base), value)
            if recipe is None or whole is None:
                self._write_strided(storage, geometry, value)
            else:
                self._write(storage, recipe.base, whole)
        storage.known[geometry] = value
        storage.see(geometry)

    def _outgrows(self, storage: Storage, geometry: Geometry) -> bool:
        """Whether the memory was enlarged, as ``out=`` does with an empty tensor, and is filled anew."""
        if geometry in storage.recipes or not all(isinstance(n, int) for n in (*geometry[1], *storage.root[1])):
            return False
        fresh = geometry[0] == storage.root[0] and row_major(geometry) is not None
        return fresh and count(geometry) * itemsize(geometry) > count(storage.root) * itemsize(storage.root)

    # -- by strides ----------------------------------------------------------------------------------------------------
    def _flat(self, storage: Storage) -> Var:
        """The storage's elements in memory order."""
        if storage.flat is None:
            order = row_major(storage.root)
            if order is None:
                raise TracingError("trace-error", "memory that is not laid out densely is read through other strides")
            value = self._permuted(self._read(storage, storage.root), order)
            storage.flat = self._viewed(value, (count(storage.root),))
        return storage.flat

    def _read_strided(self, storage: Storage, geometry: Geometry) -> Var:
        if not _dense_sizes(geometry):
            raise TracingError("trace-error", "memory of a size that the data decides is read through other strides")
        flat = self._typed(self._flat(storage), geometry)
        offset, sizes, strides, _ = geometry
        start = whole(offset) - self._start(storage, geometry)
        order = row_major(geometry)
        total = whole(self._builder.types[flat].shape[0])
        _within(geometry, start, total)
        if order is None:
            return self._builder.one(aten.as_strided.default, (flat, sizes, strides, start), sizes, dtype_of(geometry))
        end = start + count(geometry)
        if (start, end) != (0, total):
            flat = self._builder.one(aten.slice.Tensor, (flat, 0, start, end), (end - start,), dtype_of(geometry))
        value = self._viewed(flat, tuple(sizes[d] for d in order))
        return self._permuted(value, tuple(order.index(d) for d in range(len(order))))

    def _write_strided(self, storage: Storage, geometry: Geometry, value: Var) -> None:
        if overlaps(geometry):
            raise TracingError("trace-error", _SHARED)
        if not _dense_sizes(geometry):
            raise TracingError("trace-error", "memory of a size that the data decides is written through other strides")
        flat = self._typed(self._flat(storage), geometry)
        shape, dtype = self._builder.types[flat].shape, dtype_of(geometry)
        offset, sizes, strides, _ = geometry
        start = whole(offset) - self._start(storage, geometry)
        order = row_major(geometry)
        _within(geometry, start, whole(shape[0]))
        if order is None:
            changed = self._builder.one(
                aten.as_strided_scatter.default, (flat, value, sizes, strides, start), shape, dtype
            )
        else:
            part = self._viewed(self._permuted(value, order), (count(geometry),))
            end = start + count(geometry)
            changed = part
            if (start, end) != (0, shape[0]):
                changed = self._builder.one(aten.slice_scatter.default, (flat, part, 0, start, end), shape, dtype)
        self._set_flat(storage, self._typed(changed, storage.root))

    def _set_flat(self, storage: Storage, flat: Var) -> None:
        order = row_major(storage.root)
        assert order is not None
        sizes = storage.root[1]
        value = self._viewed(flat, tuple(sizes[d] for d in order))
        value = self._permuted(value, tuple(order.index(d) for d in range(len(order))))
        storage.known, storage.flat = {storage.root: value}, flat

    def _start(self, storage: Storage, geometry: Geometry) -> int:
        """Where the root begins, in elements of the geometry's type."""
        offset = storage.root[0]
        assert isinstance(offset, int)
        return offset * itemsize(storage.root) // itemsize(geometry)

    def _typed(self, flat: Var, geometry: Geometry) -> Var:
        """A flat value as elements of another type, bit by bit."""
        kind = self._builder.types[flat]
        dtype = dtype_of(geometry)
        if kind.dtype == dtype:
            return flat
        (length,) = kind.shape
        assert isinstance(length, int)
        size = length * BYTES[kind.dtype] // BYTES[dtype]
        return self._builder.one(aten.view.dtype, (flat, DType(dtype)), (size,), dtype)

    def _viewed(self, value: Var, shape: tuple[object, ...]) -> Var:
        kind = self._builder.types[value]
        if kind.shape == shape:
            return value
        sizes = tuple(n for n in shape if isinstance(n, int))
        return self._builder.one(aten.view.default, (value, sizes), sizes, kind.dtype)

    def _permuted(self, value: Var, order: tuple[int, ...]) -> Var:
        if order == tuple(range(len(order))):
            return value
        kind = self._builder.types[value]
        return self._builder.one(aten.permute.default, (value, order), tuple(kind.shape[d] for d in order), kind.dtype)


def _dense_sizes(geometry: Geometry) -> bool:
    return all(isinstance(n, int) for n in (geometry[0], *geometry[1], *geometry[2]))


def _within(geometry: Geometry, start: int, total: int) -> None:
    """Raise ``TracingError`` for a view, from ``start`` on, of more than the ``total`` elements that its memory has: PyTorch refuses to make it."""
    _, sizes, strides, _ = geometry
    if count(geometry) == 0:
        return
    last = start + sum((whole(size) - 1) * whole(stride) for size, stride in zip(sizes, strides, strict=True))
    if start < 0 or last >= total:
        raise TracingError("trace-error", f"a view of {last + 1} elements reaches beyond its memory, which has {total}")


def _shape(ref: Ref) -> str:
    return f"({', '.join(map(str, ref.shape))})"
