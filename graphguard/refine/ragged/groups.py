"""Products of groups of rows whose number the data decides, and how many rows have a value."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from graphguard.ir import Node, Var
from graphguard.ir.graph import Arg
from graphguard.refine.ragged.arguments import Results, argument, less, rows_known
from graphguard.refine.ragged.orders import Names, Order, Rows
from graphguard.refine.ragged.program import Ragged
from graphguard.relations.algebra import Unsupported
from graphguard.relations.terms.values import NormalValue
from graphguard.rules.lines.contraction import contracted


def grouped_product(program: Ragged, node: Node) -> Results:
    """Group g has the rows offs[g - 1] <= t < offs[g]: their product with its own matrix, or the product that sums over them."""
    left, right = (rows_known(program, one) for one in node.args[:2])
    if argument(node, 3, "bias") is not None or _converts(program, node):
        raise Unsupported("a grouped product with a bias or in another type, of rows that the data decides")
    if left is not None and right is None and left.dim == 0:
        member = _membership(program, left.order, argument(node, 2, "offs"))
        matrices = program.value_of(node.args[1])
        return [Rows(contracted(program.algebra, "td,tg,gdf->tf", left.data, member, matrices), left.order)]
    if left is None or right is None or left.dim != 1 or right.dim != 0:
        raise Unsupported("a grouped product along other dims than the rows")
    program.orders.need_alike(left.order, right.order)
    member = _membership(program, left.order, argument(node, 2, "offs"))
    return [contracted(program.algebra, "mt,tg,tf->gmf", program.orders.masked(left), member, right.data)]


def _converts(program: Ragged, node: Node) -> bool:
    types = program.graph.types
    return len({types[one].dtype for one in (*node.args[:2], *node.outs) if isinstance(one, Var)}) != 1


def _membership(program: Ragged, order: Order, offs: Arg) -> NormalValue:
    """1 where a slot's row is in a group, shape (slots, groups); raises ``Unsupported`` unless every row is seen to be in one."""
    a, ends = program.algebra, program.value_of(offs)
    groups = ends.shape[0]
    first = order.keys[0] if order.keys else None
    if isinstance(first, Names) and set(first.values) <= set(range(groups)):
        hot = _columns(program, first, 0, groups)
        up_to = a.literal(np.tri(groups))
        if program.orders.same(a.contract([(up_to, "hg"), (order.valid, "n"), (hot, "ng")], "h"), ends):
            return hot
    each = [a.reshape(a.slice(ends, 0, g, g + 1), ()) for g in range(groups)]
    sizes = [each[0], *(less(program, end, before) for before, end in pairwise(each))]
    columns = [a.reshape(mask, (order.slots, 1)) for mask in program.cutting.masks(order, sizes)]
    return a.concat(columns, 1) if len(columns) > 1 else columns[0]


def _columns(program: Ragged, names: Names, low: int, count: int) -> NormalValue:
    """1 where a slot has the integer ``low + column``."""
    picked = np.asarray([[float(value == low + at) for at in range(count)] for value in names.values])
    return program.orders.weighted(names, picked)


def histogram(program: Ragged, node: Node) -> Results:
    """``histc`` of integers: how many rows there are of every one from ``min`` to ``max``, one a bin; where both are one number, of any."""
    rows = program.rows_of(node.args[0])
    bins, low, high = argument(node, 1, "bins", 100), argument(node, 2, "min", 0), argument(node, 3, "max", 0)
    if not isinstance(bins, int) or not isinstance(low, int | float) or high != low + bins - 1 or low != int(low):
        raise Unsupported("a histogram with bins that are not one integer each")
    if rows.names is None:
        raise Unsupported("a histogram of numbers that are not known to be few integers")
    a = program.algebra
    if bins == 1:  # the range is then that of the data
        return [a.reshape(program.orders.length(rows.order), (1,))]
    return [a.contract([(rows.order.valid, "n"), (_columns(program, rows.names, int(low), bins), "nb")], "b")]
