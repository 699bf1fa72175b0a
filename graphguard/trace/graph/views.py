"""How one tensor shows the elements of another, and how a change of the view is put back into what it shows."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from graphguard.ir.graph import DType, Size, Sym, Var
from graphguard.ops import aten
from graphguard.trace.calls.events import Event, Geometry, Ref
from graphguard.trace.calls.kinds import Kind
from graphguard.trace.graph.builder import Builder

BYTES = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2, "int32": 4, "uint32": 4, "float32": 4,
    "int64": 8, "uint64": 8, "float64": 8, "complex64": 8, "complex32": 4, "complex128": 16, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip


_COUNTED = 1 << 14  # elements whose places are counted


@dataclass(frozen=True, slots=True)
class Recipe:
    """One step of rearrangement from the tensor at ``base`` to one of the same memory: an operator and its further arguments."""

    base: Geometry
    op: str
    args: tuple[Any, ...]

    def apply(self, builder: Builder, base: Var, target: Geometry) -> Var:
        """The rearranged value."""
        return builder.one(self.op, (base, *self.args), target[1], dtype_of(target))

    def put_back(self, builder: Builder, old: Var, new: Var) -> Var | None:
        """``old`` with the elements of the view replaced by ``new``; None where this operator has no simple inverse."""
        shape, dtype = self.base[1], dtype_of(self.base)
        scatter = _SCATTERS.get(self.op)
        if scatter is not None:
            return builder.one(scatter, (old, new, *self.args), shape, dtype)
        if self.op in (aten.view.default, aten.unsqueeze.default) or self.op.startswith("aten.squeeze."):
            return builder.one(aten.view.default, (new, shape), shape, dtype)
        if self.op in (aten.t.default, aten.transpose.int):
            return builder.one(self.op, (new, *self.args), shape, dtype)
        if self.op == aten.permute.default:
            dims = [d % len(shape) for d in self.args[0]]
            inverse = tuple(dims.index(d) for d in range(len(dims)))
            return builder.one(self.op, (new, inverse), shape, dtype)
        if self.op == aten.view.dtype:
            return builder.one(self.op, (new, DType(dtype)), shape, dtype)
        if self.op in _TWINS:
            return builder.one(_TWINS[self.op], (new,), shape, dtype)
        return None


_SCATTERS = {
    aten.slice.Tensor: aten.slice_scatter.default,
    aten.select.int: aten.select_scatter.default,
    aten.diagonal.default: aten.diagonal_scatter.default,
}
_TWINS = {
    aten.view_as_real.default: aten.view_as_complex.default,
    aten.view_as_complex.default: aten.view_as_real.default,
    "aten._conj.default": "aten._conj.default",
    "aten._neg_view.default": "aten._neg_view.default",
}
_RESHAPES = frozenset(("view", "_unsafe_view", "reshape", "_reshape_alias", "flatten", "unflatten", "view_copy"))
_KEPT = frozenset(
    (
        "t", "transpose", "permute", "unsqueeze", "squeeze", "slice", "select", "expand", "diagonal", "view_as_real",
        "view_as_complex", "_conj", "_neg_view", "unfold",
    )
)  # fmt: skip


def type_of(ref: Ref) -> tuple[tuple[Size, ...], str]:
    """Shape and element type of what a tensor shows."""
    return ref.shape, dtype_of(ref.geometry)


def dtype_of(geometry: Geometry) -> str:
    """The element type, without the marks of lazy conjugation and negation."""
    return geometry[3].rstrip("*-")


def itemsize(geometry: Geometry) -> int:
    """Bytes of an element."""
    return BYTES[dtype_of(geometry)]


def recipes(event: Event, kind: Kind, base: Geometry, outs: list[Geometry]) -> list[Recipe | None]:
    """For each result of a view operator, the step that makes it from the operand; None where only the strides say."""
    name, args = kind.short_name, event.args[1:]
    if name in _RESHAPES and not (name == "view" and outs[0][3] != base[3]):
        return [Recipe(base, aten.view.default, (outs[0][1],))]
    if name == "view":
        return [Recipe(base, aten.view.dtype, args)]
    if name in ("split", "split_with_sizes", "chunk", "tensor_split"):
        return _split(event, base, outs)
    if name == "unbind":
        dim = args[0] if args else event.kwargs.get("dim", 0)
        return [Recipe(base, aten.select.int, (dim, i)) for i in range(len(outs))]
    if name in _KEPT:
        return [Recipe(base, kind.text, args)]
    return [None] * len(outs)


def _split(event: Event, base: Geometry, outs: list[Geometry]) -> list[Recipe | None]:
    dim = event.args[2] if len(event.args) > 2 else event.kwargs.get("dim", 0)
    found: list[Recipe | None] = []
    start: Size = 0
    for out in outs:
        end = _sum(start, out[1][dim % len(base[1])])
        found.append(Recipe(base, aten.slice.Tensor, (dim, start, end)))
        start = end
    return found


def _sum(a: Size, b: Size) -> Size:
    """Two sizes added up, which may be symbols."""
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    return Sym(" + ".join(size.expr if isinstance(size, Sym) else str(size) for size in (a, b) if size != 0))


def row_major(geometry: Geometry) -> tuple[int, ...] | None:
    """The order of dims in which the elements lie one after the other, outermost first; None where they do not."""
    sizes, strides = geometry[1], geometry[2]
    if not all(isinstance(n, int) for n in (*sizes, *strides)):
        return tuple(range(len(sizes))) if _is_contiguous(sizes, strides) else None
    if 0 in sizes:
        return tuple(range(len(sizes)))
    order = sorted(range(len(sizes)), key=lambda d: (sizes[d] != 1, -whole(strides[d]), d))
    expected = 1
    for d in reversed(order):
        if sizes[d] == 1:
            continue
        if strides[d] != expected:
            return None
        expected *= whole(sizes[d])
    placed = [d for d in order if sizes[d] != 1]
    if placed == sorted(placed):
        return tuple(range(len(sizes)))
    return tuple(order)


def overlaps(geometry: Geometry) -> bool:
    """Whether several elements share memory, or may: they do not where along every dim a step goes past all that the dims of smaller steps reach."""
    return not _is_spread(geometry) and not _is_apart(geometry)


def _is_apart(geometry: Geometry) -> bool:
    """Whether all elements lie at places of their own, counted one by one where they are not too many."""
    sizes, strides = geometry[1], geometry[2]
    if not all(isinstance(n, int) for n in (*sizes, *strides)) or count(geometry) > _COUNTED:
        return False
    places = {0}
    for size, stride in zip(sizes, strides, strict=True):
        places = {place + whole(stride) * step for place in places for step in range(whole(size))}
    return len(places) == count(geometry)


def _is_spread(geometry: Geometry) -> bool:
    sizes, strides = geometry[1], geometry[2]
    if 0 in sizes:
        return True
    reach = 0
    steps = [(whole(stride), size) for size, stride in zip(sizes, strides, strict=True) if isinstance(stride, int)]
    for step, size in sorted(((step, size) for step, size in steps if size != 1), key=lambda pair: pair[0]):
        if step == 0 or (isinstance(size, int) and step <= reach):
            return False
        reach += step * (size - 1) if isinstance(size, int) else 0
    return True


def _is_contiguous(sizes: tuple[Size, ...], strides: tuple[Size, ...]) -> bool:
    """Symbolic sizes: fresh results of operators are laid out row by row unless a stride says otherwise in numbers."""
    inner = [n for n in sizes[1:] if not isinstance(n, int)]
    if inner:
        return True
    return strides == tuple(0 if sizes[d] == 1 else prod(whole(n) for n in sizes[d + 1 :]) for d in range(len(sizes)))


def whole(size: Size) -> int:
    """An extent that the caller knows to be a number."""
    assert isinstance(size, int)
    return size


def count(geometry: Geometry) -> int:
    """Number of elements."""
    return prod(whole(n) for n in geometry[1])
