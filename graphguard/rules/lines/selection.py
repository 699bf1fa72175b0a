"""Sorting and its kin: functions of a line that stay closed, batched over all other dims."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphguard.relations.algebra import Algebra, Kind, Unsupported, V
from graphguard.rules.basis.arithmetic import LETTERS, compared, dim_of, negative
from graphguard.rules.basis.index_maps import cut, moved
from graphguard.rules.basis.merged_choices import Choice, choices_in, found_among, note_choice
from graphguard.rules.basis.registry import Call, choosing
from graphguard.rules.lines.reductions import along, scan
from graphguard.rules.positions.scatter import gather


def _selected(a: Algebra[V], name: str, v: V, dim: int, extent: int, kind: Kind, attributes: tuple[object, ...]) -> V:
    """A closed function of every line along a dim to a line of another extent."""
    dim = dim_of(dim, len(v.shape))
    letters = LETTERS[: len(v.shape)]
    source = letters[:dim] + "A" + letters[dim + 1 :]
    shape = (*v.shape[:dim], extent, *v.shape[dim + 1 :])
    return a.opaque(name, attributes, [(v, source)], source.replace("A", "B"), shape, kind)


@choosing("aten.topk.default")
def topk(
    a: Algebra[V],
    self: V,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
    *,
    call: Call | None = None,
) -> tuple[V, V]:
    """The k largest (or smallest) elements of every line along dim, which are gathered from where they stand; these places are closed, batched over the other dims"""
    dim, attributes = dim_of(dim, len(self.shape)), (k, largest, sorted)  # without an order any may come out
    parts = choices_in(a, self, dim, largest, k) if sorted and self.shape else None
    if parts is not None:
        return _of_parts(a, self, k, dim, parts)
    places = _selected(a, "topk.indices", self, dim, k, "int", attributes)
    try:
        values: V = gather(a, self, dim, places) if self.shape else self
    except Unsupported:
        return _selected(a, "topk", self, dim, k, self.kind, attributes), places
    if self.shape:
        note_choice(a, Choice(self, dim, largest, values, places))
    return _in_order(a, self, dim, largest, values, call) if sorted else values, places


def _of_parts(a: Algebra[V], v: V, k: int, dim: int, parts: list[Choice[V]]) -> tuple[V, V]:
    """What is chosen among choices is chosen from all that they were made from."""
    whole = a.concat([part.line for part in parts], dim)
    places = _selected(a, "topk.indices", whole, dim, k, "int", (k, parts[0].largest, True))
    values: V = gather(a, whole, dim, places)
    return values, found_among(a, v, dim, parts, values, places)


def _in_order(a: Algebra[V], v: V, dim: int, largest: bool, own: V, call: Call | None) -> V:
    """The first elements of every sorted line as those of the whole line in one order, if nobody reads where they stood; else their ``own`` form, with those places in it."""
    sign = a.sorts_by(v) if v.shape and v.kind != "bool" else 0
    if not sign or call is None or call.reads(1):
        return own
    last = len(v.shape) - 1
    line = moved(a, v if sign > 0 else negative(a, v), dim, last)
    try:
        values: V = gather(a, line, last, scan(a, "argsort", line, last, "int", (True,)))
    except Unsupported:
        return own
    values = values if largest == (sign > 0) else a.flip(values, last)
    first = moved(a, cut(a, values, last, 0, own.shape[dim]), last, dim)
    return first if sign > 0 else negative(a, first)


def _order(a: Algebra[V], v: V, dim: int, descending: bool, stable: bool) -> np.ndarray | None:
    """Where the elements of every sorted line stood, of known integers; None where that depends on how ties are broken."""
    known = a.known(v) if v.kind == "int" and v.shape else None
    if known is None or not known.size:
        return None
    keys = -known if descending else known
    order = np.argsort(keys, axis=dim, kind="stable")
    ties = (np.diff(np.take_along_axis(keys, order, axis=dim), axis=dim) == 0).any()
    return None if ties and not stable else order


@choosing("aten.sort.default")
def sort(
    a: Algebra[V], self: V, dim: int = -1, descending: bool = False, stable: bool = False, *, call: Call | None = None
) -> tuple[V, V]:
    """Every line along dim in order, and where its elements stood: closed, batched over the other dims; known integers are sorted"""
    order, known = _order(a, self, dim, descending, stable), a.known(self)
    if order is not None and known is not None:
        return a.literal(np.take_along_axis(known, order, axis=dim)), a.literal(order)
    places = scan(a, "argsort", self, dim, "int", (descending,))
    values = _at_places(a, self, dim, places, descending)
    return _in_order(a, self, dim_of(dim, len(self.shape)), descending, values, call), places


def _at_places(a: Algebra[V], v: V, dim: int, places: V, descending: bool) -> V:
    """The elements of every line where they stood; a closed function of lines that may hold infinities, which no position is multiplied by."""
    try:
        return gather(a, v, dim, places) if v.shape else v
    except Unsupported:
        return scan(a, "sort", v, dim, v.kind, (descending,))


@choosing("aten.sort.stable")
def sort_stable(
    a: Algebra[V],
    self: V,
    *,
    stable: bool | None,
    dim: int = -1,
    descending: bool = False,
    call: Call | None = None,
) -> tuple[V, V]:
    """Every line along dim in order, and where its elements stood: closed, batched over the other dims; known integers are sorted"""
    return sort(a, self, dim, descending, bool(stable), call=call)


@choosing("aten.argsort.default")
def argsort(a: Algebra[V], self: V, dim: int = -1, descending: bool = False) -> V:
    """Where the elements of the sorted line stood: closed, batched over the other dims"""
    return sort(a, self, dim, descending)[1]


@choosing("aten.argsort.stable")
def argsort_stable(a: Algebra[V], self: V, *, stable: bool, dim: int = -1, descending: bool = False) -> V:
    """Where the elements of the sorted line stood: closed, batched over the other dims"""
    return sort(a, self, dim, descending, stable)[1]


@choosing("aten.kthvalue.default")
def kthvalue(a: Algebra[V], self: V, k: int, dim: int = -1, keepdim: bool = False) -> tuple[V, V]:
    """The k-th smallest element of every line along dim, and where it stands: closed, batched over the other dims"""
    dim = dim_of(dim, len(self.shape))
    values = along(a, "kthvalue", self, dim, keepdim, self.kind, (k,))
    return values, along(a, "kthvalue.indices", self, dim, keepdim, "int", (k,))


@choosing("aten.median.dim")
def median(a: Algebra[V], self: V, dim: int, keepdim: bool = False) -> tuple[V, V]:
    """The median of every line along dim, and where it stands: closed, batched over the other dims"""
    dim = dim_of(dim, len(self.shape))
    return along(a, "median", self, dim, keepdim, self.kind), along(a, "median.indices", self, dim, keepdim, "int")


@choosing("aten.mode.default", "aten.nanmedian.dim")
def of_line(a: Algebra[V], self: V, dim: int = -1, keepdim: bool = False, *, call: Call) -> tuple[V, V]:
    """An element of every line along dim, the most frequent one or the median, and where it stands: closed, batched over the other dims"""
    dim, name = dim_of(dim, len(self.shape)), call.node.op.split(".")[1]
    return along(a, name, self, dim, keepdim, self.kind), along(a, f"{name}.indices", self, dim, keepdim, "int")


@choosing("aten.median.default", "aten.nanmedian.default")
def of_all(a: Algebra[V], self: V, *, call: Call) -> V:
    """The median of all elements: closed"""
    flat = a.reshape(self, (math.prod(self.shape),))
    return along(a, call.node.op.split(".")[1], flat, 0, False, self.kind)


@choosing("aten.searchsorted.Tensor")
def searchsorted(
    a: Algebra[V],
    sorted_sequence: V,
    self: V,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: V | None = None,
) -> V:
    """How many elements of the sorted line come before each element: counted where the line is known, else closed, elementwise in self where there is one line"""
    attributes = (right or side == "right",)
    line = a.known(sorted_sequence) if len(sorted_sequence.shape) == 1 and sorter is None else None
    if line is not None and line.size and np.isfinite(line).all() and not (np.diff(line) < 0).any():
        row = a.reshape(sorted_sequence, (1,) * len(self.shape) + line.shape)
        before = compared(a, "le" if attributes[0] else "lt", row, a.reshape(self, (*self.shape, 1)))
        return a.sum(a.number(before, "int"), [len(self.shape)])
    name = "searchsorted"
    if len(sorted_sequence.shape) == 1 and sorter is None:
        letters = LETTERS[: len(self.shape)]
        return a.opaque(name, attributes, [(sorted_sequence, "A"), (self, letters)], letters, self.shape, "int")
    lead = LETTERS[: len(self.shape) - 1]
    operands: list[Any] = [(sorted_sequence, lead + "A"), (self, lead + "y")]
    if sorter is not None:
        operands.append((sorter, lead + "A"))
    return a.opaque(name, attributes, operands, lead + "y", self.shape, "int")


@choosing("aten.bucketize.Tensor")
def bucketize(a: Algebra[V], self: V, boundaries: V, *, out_int32: bool = False, right: bool = False) -> V:
    """How many boundaries come before each element: closed, elementwise in self"""
    return searchsorted(a, boundaries, self, right=right)
