"""Tensors made from nothing but numbers."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import count
from typing import Any, Final

import numpy as np

from graphguard.relations.algebra import Algebra, Kind, Unsupported, V
from graphguard.rules.basis.arithmetic import Number, expanded, full, is_number, plus, scaled
from graphguard.rules.basis.casting import cast, convert
from graphguard.rules.basis.registry import Call, choosing
from graphguard.rules.basis.scalars import exact

#: Every uninitialised tensor is an unknown of its own, so nothing that depends on one is ever proved.
_UNINITIALISED: Final = count()


def constant(a: Algebra[V], call: Call, number: Number) -> V:
    """One number everywhere, in the shape and kind of the result."""
    return full(a, call.shape(), number, call.kind())


@choosing(
    "aten.zeros.default",
    "aten.zeros_like.default",
    "aten.new_zeros.default",
    "aten.zero.default",
    "aten._efficientzerotensor.default",
)
def zeros(a: Algebra[V], self: object, *size: object, call: Call, **options: object) -> V:
    """out = 0"""
    return constant(a, call, 0)


@choosing("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default")
def ones(a: Algebra[V], self: object, *size: object, call: Call, **options: object) -> V:
    """out = 1"""
    return constant(a, call, 1)


@choosing("aten.full.default")
def full_rule(a: Algebra[V], size: Sequence[int], fill_value: Number, *, call: Call, **options: object) -> V:
    """out = fill_value"""
    return constant(a, call, fill_value)


@choosing("aten.full_like.default")
def full_like(a: Algebra[V], self: V, fill_value: Number, *, call: Call, **options: object) -> V:
    """out = fill_value"""
    return constant(a, call, fill_value)


@choosing("aten.new_full.default")
def new_full(a: Algebra[V], self: V, size: Sequence[int], fill_value: Number, *, call: Call, **options: object) -> V:
    """out = fill_value"""
    return constant(a, call, fill_value)


@choosing("aten.scalar_tensor.default")
def scalar_tensor(a: Algebra[V], s: Number, *, call: Call, **options: object) -> V:
    """out = s"""
    return constant(a, call, s)


@choosing("aten.fill.Scalar", "aten.fill.Tensor")
def fill(a: Algebra[V], self: V, value: Any, *, call: Call) -> V:
    """out = value everywhere"""
    if is_number(value):
        return constant(a, call, value)
    number: V = cast(a, value, call.dtype("value"), call.type().dtype)
    return expanded(a, number, call.shape())


@choosing("aten.copy.default")
def copy(a: Algebra[V], self: V, src: V, non_blocking: bool = False, *, call: Call) -> V:
    """out = src, broadcast to self and in its type"""
    return expanded(a, cast(a, src, call.dtype("src"), call.type().dtype), call.shape())


@choosing(
    "aten._to_copy.default",
    "prims.convert_element_type.default",
    "gg.rounded",
    "aten.to.dtype",
    "aten.type_as.default",
    "aten._autocast_to_reduced_precision.default",
    "aten._autocast_to_full_precision.default",
)
def to_copy(a: Algebra[V], self: V, *options: object, call: Call, **more: object) -> V:
    """out = self in the type of the result: a wider float is the same number, a narrower one cast(self)"""
    return cast(a, self, call.dtype("self"), call.type().dtype)


def unknown(a: Algebra[V], shape: tuple[int, ...], kind: Kind) -> V:
    """A value of which nothing is known; it equals no other."""
    if 0 in shape:
        return a.full(shape, Fraction(0), kind)
    return a.random(("uninitialised", next(_UNINITIALISED)), "uninitialised", (), shape, kind)


@choosing(
    "aten.empty.memory_format",
    "aten.empty_like.default",
    "aten.empty_strided.default",
    "aten.empty_permuted.default",
    "aten.new_empty.default",
    "aten.new_empty_strided.default",
)
def empty(a: Algebra[V], self: object, *size: object, call: Call, **options: object) -> V:
    """An unknown that nothing else equals"""
    return unknown(a, call.shape(), call.kind())


@choosing("aten.arange.start_step")
def arange_step(a: Algebra[V], start: Number, end: Number, step: Number = 1, *, call: Call, **options: object) -> V:
    """out[i] = start + i step"""
    v = convert(a, a.iota(call.shape()[0]), call.kind())
    return plus(a, scaled(a, v, exact(step)), start)


@choosing("aten.arange.start")
def arange_start(a: Algebra[V], start: Number, end: Number, *, call: Call, **options: object) -> V:
    """out[i] = start + i"""
    return arange_step(a, start, end, call=call)


@choosing("aten.arange.default")
def arange(a: Algebra[V], end: Number, *, call: Call, **options: object) -> V:
    """out[i] = i"""
    return arange_step(a, 0, end, call=call)


@choosing("aten.linspace.default")
def linspace(a: Algebra[V], start: Number, end: Number, steps: int, *, call: Call, **options: object) -> V:
    """out[i] = start + i (end - start) / (steps - 1)"""
    if call.kind() != "float":
        raise Unsupported("linspace of integers")
    first, last = exact(start), exact(end)
    step = (last - first) / max(steps - 1, 1)
    return plus(a, scaled(a, a.number(a.iota(steps), "float"), step), first)


@choosing("aten.tril_indices.default")
def tril_indices(a: Algebra[V], row: int, col: int, offset: int = 0, **options: object) -> V:
    """The positions (i, j) with j - i <= offset, row by row"""
    return a.literal(np.stack(np.tril_indices(row, offset, col)))


@choosing("aten.triu_indices.default")
def triu_indices(a: Algebra[V], row: int, col: int, offset: int = 0, **options: object) -> V:
    """The positions (i, j) with j - i >= offset, row by row"""
    return a.literal(np.stack(np.triu_indices(row, offset, col)))


@choosing("aten.eye.default", "aten.eye.m")
def eye(a: Algebra[V], n: int, m: int | None = None, *, call: Call, **options: object) -> V:
    """out[i, j] = [i = j]"""
    rows, columns = call.shape()
    row = a.expand(a.reshape(a.iota(rows), (rows, 1)), (rows, columns))
    return convert(a, a.compare("eq", row, a.expand(a.iota(columns), (rows, columns))), call.kind())
