"""Operators that order and choose rows whose number the data decides.

Each takes the program and a call and gives its results; what is not seen to be right raises ``Unsupported``.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from graphguard.ir import Node, Var
from graphguard.ir.graph import Arg
from graphguard.refine.ragged.arguments import Results, line_of
from graphguard.refine.ragged.orders import Key, Names, Order, Rows
from graphguard.refine.ragged.program import Ragged
from graphguard.relations.algebra import Unsupported
from graphguard.relations.terms.values import NormalValue
from graphguard.rules.positions.scatter import index_select as take_rows


def sort(program: Ragged, node: Node) -> Results:
    """Slots get another key; where an unstable sort puts equal elements is known by the whole of their line only."""
    rows = line_of(program, node.args[0])
    if rows.target is not None:
        raise Unsupported("places of rows that are sorted themselves")
    stable = node.op.endswith(".stable") and node.kwargs.get("stable") is True
    descending = node.kwargs.get("descending", len(node.args) > 2 and node.args[2])
    names = rows.names or program.orders.names_of(rows.data)
    first = program.orders.renamed(names, [-value for value in names.values]) if descending else names
    keys: list[Key] = [first] if len(first.values) > 1 else []
    if not stable:
        keys.append(_order_of_equals(program, rows))
    order = Order(rows.order.valid, (*keys, *rows.order.keys))
    line = replace(rows, order=order, names=names)
    plain = program.orders.is_plain(rows.order)
    places = Rows(program.algebra.iota(order.slots), order, target=None if plain else rows.order)
    return [places] if "argsort" in node.op else [line, places]


def _order_of_equals(program: Ragged, rows: Rows) -> NormalValue:
    """A number per slot that nobody knows, a function of the line and of which slots are its rows, in which order; one that nothing else has where these cannot be told."""
    a = program.algebra
    lines = [rows.data, rows.order.valid]
    for key in rows.order.keys:
        if isinstance(key, Names):
            lines += [program.orders.column(key.hot, at) for at in range(key.hot.shape[1])]
        else:
            lines.append(key)
    try:
        return a.opaque("order of equals", (), [(line, "A") for line in lines], "A", rows.data.shape, "int")
    except Unsupported:
        number = len(a.universe.table)  # which grows with what is made here
        return a.opaque("order of equals", (number,), [(a.iota(rows.order.slots), "A")], "A", rows.data.shape, "int")


def nonzero(program: Ragged, node: Node) -> Results:
    """The places where something is not zero: shape (rows, dims)."""
    assert isinstance(node.args[0], Var)
    a, shape = program.algebra, program.graph.types[node.args[0]].shape
    if len(shape) == 1:
        mask = line_of(program, node.args[0])
        order = program.orders.chosen(mask.order, _indicator(program, mask.data))
        target = None if program.orders.is_plain(mask.order) else mask.order
        return [Rows(a.reshape(a.iota(order.slots), (order.slots, 1)), order, target=target)]
    rows = program.rows.get(node.args[0])
    if rows is not None and rows.target is None and rows.dim == len(shape) - 1 == 1:
        return [_nonzero_of_rows(program, rows)]
    value = program.value_of(node.args[0])
    slots = int(np.prod(value.shape))
    places = np.stack(np.unravel_index(np.arange(slots), value.shape), 1)
    valid = _indicator(program, a.reshape(value, (slots,)))
    return [Rows(a.literal(places.astype(np.int64)), Order(valid))]


def _nonzero_of_rows(program: Ragged, rows: Rows) -> Rows:
    """Where a matrix with rows in its last dim is not zero, line by line: the line's number, and the place in it."""
    a, lines, slots = program.algebra, rows.data.shape[0], rows.order.slots
    valid = a.multiply(_indicator(program, rows.data), program.orders.beside(rows.order.valid, rows.data.shape, 1))
    of_line = np.repeat(np.arange(lines), slots)
    places = np.stack([of_line, np.tile(np.arange(slots), lines)], 1)
    line = Names(a.literal((of_line[:, None] == np.arange(lines)[None, :]).astype(float)), tuple(range(lines)))
    keys = [_again(program, key, lines) for key in rows.order.keys]
    order = Order(a.reshape(valid, (lines * slots,)), (*([line] if lines > 1 else []), *keys))
    return Rows(a.literal(places.astype(np.int64)), order, target=rows.order, column=1)


def _again(program: Ragged, key: Key, times: int) -> Key:
    """A key of slots that come several times."""
    line = key.hot if isinstance(key, Names) else key
    line = line if times == 1 else program.algebra.concat([line] * times, 0)
    return Names(line, key.values) if isinstance(key, Names) else line


def _indicator(program: Ragged, value: NormalValue) -> NormalValue:
    """1 where a value is true, or not zero, else 0."""
    a = program.algebra
    if value.kind != "bool":
        value = a.logical_not(a.compare("eq", value, a.full(value.shape, Fraction(0), value.kind)))
    return a.number(value, "float")


def index(program: Ragged, node: Node) -> Results:
    """``self[indices]``: rows at places, elements at places along several dims, or what a mask chooses."""
    indices = node.args[1]
    assert isinstance(indices, tuple)
    if not indices or any(not isinstance(one, Var) for one in indices):
        raise Unsupported("rows at places along later dims")
    if len(indices) > 1:
        return [_elements(program, node, indices)]
    return [_read(program, node.args[0], indices[0])]


def index_select(program: Ragged, node: Node) -> Results:
    """Rows at places."""
    if node.args[1] != 0:
        raise Unsupported("rows at places along later dims")
    return [_read(program, node.args[0], node.args[2])]


def gather(program: Ragged, node: Node) -> Results:
    """``gather`` of rows, whose index names one place for all elements of a row."""
    self, dim, index = node.args[:3]
    return [_taken(program, self, one_place_a_row(program, dim, index, self))]


def one_place_a_row(program: Ragged, dim: Arg, index: Arg, *others: Arg) -> Rows:
    """The index of a gather or a scatter among rows as one of whole rows; raises ``Unsupported`` where it differs within one, or leaves out a part of it."""
    at, types = program.rows_of(index), program.graph.types
    if dim not in (0, -len(at.data.shape)) or at.dim != 0:
        raise Unsupported("rows at places along later dims")
    widths = [types[one].shape[1:] for one in (index, *others) if isinstance(one, Var)]
    if any(width != widths[0] for width in widths):
        raise Unsupported("parts of rows at places")
    line = at.data
    for last in range(len(line.shape) - 1, 0, -1):
        if not program.algebra.repeats(line, last):
            raise Unsupported("elements of rows at places of their own")
        line = program.algebra.slice(line, last, 0, 1)
    return replace(at, data=program.algebra.reshape(line, line.shape[:1]), names=None)


def _read(program: Ragged, self: Arg, at: Arg) -> Rows:
    mask = mask_of(program, at)
    return _taken(program, self, program.rows_of(at)) if mask is None else _chosen(program, self, mask)


def mask_of(program: Ragged, var: Arg) -> Rows | None:
    """A mask as the places where it holds, of one dim; None for numbers."""
    assert isinstance(var, Var)
    if program.graph.types[var].dtype != "bool":
        return None
    if len(program.graph.types[var].shape) > 1:
        value = program.value_of(var)
        slots = int(np.prod(value.shape))
        mask = Rows(program.algebra.reshape(value, (slots,)), Order(program.orders.ones(slots)))
    else:
        mask = program.rows_of(var)
    order = program.orders.chosen(mask.order, _indicator(program, mask.data))
    plain = program.orders.is_plain(mask.order)
    return Rows(program.algebra.iota(order.slots), order, target=None if plain else mask.order)


def _elements(program: Ragged, node: Node, indices: tuple[Arg, ...]) -> Rows:
    """Elements at places along the first dims."""
    first = program.rows_of(indices[0])
    assert isinstance(node.args[0], Var)
    if first.target is not None:
        table = program.placed(node.args[0], first.target).data
    else:
        table = program.value_of(node.args[0])
    data, order = aligned(program, indices, table.shape)
    return Rows(program.on_slots(node, {node.args[0]: table, **data}, order, 0)[0], order)


def aligned(
    program: Ragged, indices: tuple[Arg, ...], extents: tuple[int, ...]
) -> tuple[dict[Var, NormalValue], Order]:
    """Places along dims of these extents, row by row."""
    rows = [program.rows_of(var) for var in indices]
    first = rows[0]
    for place, (one, extent) in enumerate(zip(rows, extents, strict=False)):
        if (place and one.target is not None) or len(one.data.shape) != 1 or one.data.kind == "bool":
            raise Unsupported("rows at places along several dims")
        program.orders.need_alike(first.order, one.order)
        program.lies_within(one, extent)
    return {var: one.data for var, one in zip(indices, rows, strict=True) if isinstance(var, Var)}, first.order


def embedding(program: Ragged, node: Node) -> Results:
    """Rows of a table."""
    return [_taken(program, node.args[0], program.rows_of(node.args[1]))]


def masked_select(program: Ragged, node: Node) -> Results:
    """The elements where a mask holds."""
    self, var = node.args[:2]
    mask = mask_of(program, var)
    assert mask is not None
    assert isinstance(self, Var)
    assert isinstance(var, Var)
    if len(program.graph.types[self].shape) != len(program.graph.types[var].shape):
        raise Unsupported("elements chosen by a mask of another shape")
    return [_chosen(program, self, mask)]


def _chosen(program: Ragged, self: Arg, mask: Rows) -> Rows:
    if mask.target is None:
        table = program.value_of(self)
        count = 1
        lead = 0
        while count < mask.order.slots:
            count *= table.shape[lead]
            lead += 1
        return Rows(program.algebra.reshape(table, (mask.order.slots, *table.shape[max(lead, 1) :])), mask.order)
    rows = program.rows_of(self)
    program.orders.need_alike(rows.order, mask.target)
    return replace(rows, order=mask.order)


def _taken(program: Ragged, self: Arg, at: Rows) -> Rows:
    if len(at.data.shape) != 1:
        raise Unsupported("rows at places of several dims")
    if at.target is not None:
        rows = program.placed(self, at.target)
        names = rows.names
        if names is not None:
            names = Names(take_rows(program.algebra, names.hot, 0, at.data), names.values)
        return Rows(take_rows(program.algebra, rows.data, 0, at.data), at.order, names=names)
    table = program.value_of(self)
    program.lies_within(at, table.shape[0])
    if at.names is None:
        return Rows(take_rows(program.algebra, table, 0, at.data), at.order)
    return _named_rows(program, table, at.names, at.order)


def _named_rows(program: Ragged, table: NormalValue, names: Names, order: Order) -> Rows:
    """Rows of a table at places of which there are few."""
    a = program.algebra
    if min(names.values, default=0) < 0 or max(names.values, default=0) >= table.shape[0]:
        raise Unsupported("an index that may lie outside the table")
    known = a.known(table)
    if known is not None and table.kind != "float" and known.ndim == 1:
        others = program.orders.renamed(names, [int(known[value]) for value in names.values])
        return Rows(program.orders.numbered(others, table.kind), order, names=others)
    rows = take_rows(a, table, 0, a.literal(np.asarray(names.values, dtype=np.int64)))
    letters = "vabcdefgh"[: len(rows.shape)]
    data = a.contract([(names.hot, "nv"), (program.orders.number(rows), letters)], f"n{letters[1:]}")
    if rows.kind != "float":
        data = a.truth(data) if rows.kind == "bool" else a.number(data, "int")
    return Rows(data, order)
