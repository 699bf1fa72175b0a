"""Operators that add up rows whose number the data decides, or put them at places."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import prod

import numpy as np

from graphguard.ir import Node, Var
from graphguard.ir.graph import Arg
from graphguard.ops import aten
from graphguard.refine.ragged.arguments import Results, argument, less, rows_known
from graphguard.refine.ragged.choosing import aligned, mask_of, one_place_a_row
from graphguard.refine.ragged.orders import Order, Rows
from graphguard.refine.ragged.program import Ragged
from graphguard.relations.algebra import Unsupported
from graphguard.relations.terms.values import NormalValue
from graphguard.rules.positions.scatter import index_add


def total(program: Ragged, node: Node) -> Results:
    """A sum over all rows."""
    rows = rows_known(program, node.args[0])
    if rows is None or rows.target is not None:
        raise Unsupported("a sum of places")
    rank = len(rows.data.shape)
    given = argument(node, 1, "dim") if node.op.endswith("dim_IntList") else None
    listed = given if isinstance(given, tuple) and given else tuple(range(rank))
    dims = [d + rank if d < 0 else d for d in listed if isinstance(d, int)]
    if rows.dim not in dims:
        return None
    (out,) = node.outs
    shape = program.graph.types[out].shape
    numbers = [program.number(size) for size in shape]
    if None in numbers or not isinstance(node.args[0], Var):
        raise Unsupported("a size known only when the program runs")
    shapes = {out: tuple(size for size in numbers if size is not None)}
    return list(program.evaluated(node, {node.args[0]: program.orders.masked(rows)}, shapes))


def mean(program: Ragged, node: Node) -> Results:
    """The sum over rows, and over other dims, divided by how many elements there are; there is assumed to be one."""
    sums = total(program, replace(node, op=node.op.replace("mean.dim", "sum.dim_IntList").replace("mean", "sum")))
    rows = rows_known(program, node.args[0])
    if sums is None or rows is None:
        return None
    (value,) = sums
    assert isinstance(value, NormalValue)
    a, rank = program.algebra, len(rows.data.shape)
    given = argument(node, 1, "dim") if node.op.endswith("mean.dim") else None
    listed = given if isinstance(given, tuple) and given else tuple(range(rank))
    dims = {d + rank if d < 0 else d for d in listed if isinstance(d, int)} - {rows.dim}
    count = a.scale(program.orders.length(rows.order), Fraction(prod(rows.data.shape[dim] for dim in dims)))
    share = a.power(a.number(count, "float"), Fraction(-1))
    return [a.multiply(value, a.expand(share, value.shape))]


def product(program: Ragged, node: Node) -> Results:
    """A matrix product that sums over rows."""
    left = rows_known(program, node.args[0])
    right = rows_known(program, node.args[1])
    a, b = node.args[:2]
    if left is None or right is None or left.dim != 1 or right.dim != 0:
        return None
    assert isinstance(a, Var)
    assert isinstance(b, Var)
    program.orders.need_alike(left.order, right.order)
    operands = {a: program.orders.masked(left), b: right.data}
    shapes = {node.outs[0]: (left.data.shape[0], right.data.shape[1])}
    return list(program.evaluated(node, operands, shapes))


def add_rows(program: Ragged, node: Node) -> Results:
    """``index_add``: rows are added at places."""
    if node.args[1] != 0:
        raise Unsupported("rows added along another dim")
    return [_added(program, node, _places(program, node.args[0], node.args[2]))]


def copy_rows(program: Ragged, node: Node) -> Results:
    """``index_copy``: rows take places."""
    self, dim, at, source = node.args[:4]
    if dim != 0:
        raise Unsupported("rows put along another dim")
    return [_put(program, self, at, source)]


def put_rows(program: Ragged, node: Node) -> Results:
    """``index_put``: rows are added at places, or take them."""
    self, indices, source = node.args[:3]
    assert isinstance(indices, tuple)
    added = bool(argument(node, 3, "accumulate", False))
    if len(indices) > 1 and added:
        return [_added_elements(program, node, indices)]
    if len(indices) != 1:
        raise Unsupported("rows put at places along several dims")
    if not added:
        return [_put(program, self, indices[0], source)]
    types = program.graph.types
    if types[source].shape[1:] != types[self].shape[1:]:  # type: ignore[index]
        raise Unsupported("rows that are made wider where they are added")
    node = replace(node, op=aten.index_add.default, args=(self, 0, indices[0], source), kwargs={})
    return [_added(program, node, _places(program, self, indices[0]))]


def scatter_rows(program: Ragged, node: Node) -> Results:
    """``scatter_add`` of elements, or of rows whose index names one place for all elements of a row: as ``index_add`` does."""
    self, dim, index, source = node.args[:4]
    at = one_place_a_row(program, dim, index, self, source)
    return [_added(program, replace(node, op=aten.index_add.default, args=(self, 0, index, source)), at)]


def put_where_mask(program: Ragged, node: Node) -> Results:
    """``masked_scatter`` of as many elements as its mask chooses: each goes where the mask put it."""
    self, mask, source = node.args[:3]
    assert isinstance(self, Var)
    assert isinstance(mask, Var)
    shape = program.graph.types[mask].shape
    at, rows = mask_of(program, mask), program.rows_of(source)
    if at is None or at.target is not None or rows.target is not None or len(rows.data.shape) != 1:
        raise Unsupported("elements put where a mask of rows holds")
    base = program.value_of(self)
    if shape != base.shape or not program.orders.alike(at.order, rows.order):
        raise Unsupported("elements that are not seen to be those that a mask chooses")
    a, orders = program.algebra, program.orders
    left = less(program, orders.ones(at.order.slots), at.order.valid)
    kept = orders.let_through(base, a.reshape(left, base.shape))
    return [a.add([kept, a.reshape(orders.masked(rows), base.shape)])]


def _added_elements(program: Ragged, node: Node, indices: tuple[Arg, ...]) -> Rows | NormalValue:
    """Elements added at places along the first dims."""
    self, source = node.args[0], node.args[2]
    assert isinstance(self, Var)
    assert isinstance(source, Var)
    at, rows = program.rows_of(indices[0]), program.rows_of(source)
    whole = None if at.target is None else program.placed(self, at.target)
    base = program.value_of(self) if whole is None else whole.data
    data, order = aligned(program, indices, base.shape)
    if rows.target is not None or not program.orders.alike(rows.order, order):
        raise Unsupported("rows of two tensors that are not seen to belong together")
    operands = {self: base, source: program.orders.masked(rows), **data}
    (result,) = program.evaluated(node, operands, {node.outs[0]: base.shape})
    return result if whole is None else Rows(result, whole.order)


def _opened(program: Ragged, self: Arg, at: Rows, source: Arg) -> tuple[Rows, NormalValue, Order | None]:
    """Rows for places, and the tensor in which they are places, with its order if it has one."""
    rows = program.placed(source, at.order) if source in program.blanks else program.rows_of(source)
    if len(at.data.shape) != 1:
        raise Unsupported("rows put at places of several dims")
    program.orders.need_alike(at.order, rows.order)
    if at.target is not None:
        target = program.placed(self, at.target)
        return rows, target.data, target.order
    base = program.value_of(self)
    program.lies_within(at, base.shape[0])
    return rows, base, None


def _places(program: Ragged, self: Arg, index: Arg) -> Rows:
    """Where an index, or a mask, puts rows."""
    at = mask_of(program, index)
    if at is None:
        return program.rows_of(index)
    if at.target is None and program.value_of(self).shape[0] != at.order.slots:
        raise Unsupported("rows put where a mask of several dims holds")
    return at


def _added(program: Ragged, node: Node, at: Rows) -> Rows | NormalValue:
    """What ``index_add`` makes of rows at places."""
    self, _, index, source = node.args
    rows, base, order = _opened(program, self, at, source)
    if rows.target is not None:
        raise Unsupported("places of rows that are added up")
    assert isinstance(self, Var)
    assert isinstance(index, Var)
    assert isinstance(source, Var)
    operands = {self: base, index: at.data, source: program.orders.masked(rows)}
    (result,) = program.evaluated(node, operands, {node.outs[0]: base.shape})
    return result if order is None else Rows(result, order)


def _put(program: Ragged, self: Arg, index: Arg, source: Arg) -> Rows | NormalValue:
    a, orders = program.algebra, program.orders
    at = _places(program, self, index)
    rows, base, order = _opened(program, self, at, source)
    moved, slots = orders.masked(rows), base.shape[0]
    if moved.kind != base.kind:
        raise Unsupported("rows put among rows of another type")
    hit = index_add(a, a.full((slots,), Fraction(0), "float"), 0, at.data, at.order.valid)
    places = a.known(at.data)
    distinct = a.distinct(at.data, 0) if places is None else np.unique(places).size == at.order.slots
    if not distinct and not a.at_most_once(hit):
        raise Unsupported("rows put at places that may be the same")
    result = index_add(a, a.full(base.shape, Fraction(0), base.kind), 0, at.data, moved)
    needed = orders.ones(slots) if order is None else order.valid
    full = orders.same(a.multiply(hit, needed), needed)
    if rows.target is not None and not (full and order is not None):
        raise Unsupported("places of rows among other numbers")
    if not full:
        left = orders.beside(less(program, orders.ones(slots), hit), base.shape, 0)
        result = a.add([result, orders.let_through(base, left)])
    return result if order is None else Rows(result, order, target=rows.target)
