"""What moves, chooses, orders or adds up rows whose number the data decides: the table of operators, and those that cut and join.

Each takes the program and a call and gives its results, None where it acts on rows one by one after all; what is not seen to be right raises ``Unsupported``.
"""

from __future__ import annotations

from typing import Final

from graphguard.ir import Node, Sym, Var
from graphguard.ops import aten, operators
from graphguard.refine.ragged import adding, choosing, groups
from graphguard.refine.ragged.arguments import Move, Results, along, argument, less, rows_known
from graphguard.refine.ragged.losses import nll_loss, nll_loss_backward
from graphguard.refine.ragged.orders import Names, Rows
from graphguard.refine.ragged.program import Moves, Ragged
from graphguard.relations.algebra import Unsupported

_TO_THE_END: Final = 1 << 62


def repeat_interleave(program: Ragged, node: Node) -> Results:
    """The number of each count, as often as it says: which rows of another tensor it goes with follows from the counts."""
    a, counts = program.algebra, program.value_of(node.args[0])
    sizes = [a.reshape(a.slice(counts, 0, i, i + 1), ()) for i in range(counts.shape[0])]
    for order in program.orders_so_far():
        try:
            masks = program.cutting.masks(order, sizes)
        except Unsupported:
            continue
        columns = [a.reshape(mask, (order.slots, 1)) for mask in masks]
        names = Names(a.concat(columns, 1) if len(columns) > 1 else columns[0], tuple(range(len(masks))))
        return [Rows(program.orders.numbered(names, "int"), order, names=names)]
    raise Unsupported("numbers repeated as often as the data say, with no rows that they are seen to go with")


def split(program: Ragged, node: Node) -> Results:
    """Consecutive pieces of given sizes."""
    dim = along(program, node.args[0], argument(node, 2, "dim", 0))
    known = rows_known(program, node.args[0])
    if (known is not None and known.dim != dim) or not isinstance(node.args[1], tuple):
        return None
    rows = program.rows_of(node.args[0], dim)
    return list(program.cutting.split(rows, [program.size(size) for size in node.args[1]]))


def cut(program: Ragged, node: Node) -> Results:
    """Rows from one place to another."""
    dim = along(program, node.args[0], argument(node, 1, "dim", 0))
    known = rows_known(program, node.args[0])
    if known is not None and known.dim != dim:
        return None
    if dim == 0 and program.one_row(node.args[0]) is not None:  # all are alike: which of them is no question
        program.blanks[node.outs[0]] = node
        return []
    if argument(node, 4, "step", 1) != 1:
        raise Unsupported("every so many rows of as many as the data decides")
    rows = program.rows_of(node.args[0], dim)
    a = program.algebra
    start, end = argument(node, 2, "start"), argument(node, 3, "end")
    before = program.size(0 if start is None else start)
    length = a.number(program.orders.length(rows.order), "int")
    last = length if end is None or (isinstance(end, int) and end >= _TO_THE_END) else program.size(end)
    if any(isinstance(size, int) and size < 0 for size in (start, end)):
        raise Unsupported("rows counted from the end of as many as the data decides")
    sizes = [before, less(program, last, before), less(program, length, last)]
    return [program.cutting.split(rows, sizes)[1]]


def cat(program: Ragged, node: Node) -> Results:
    """Rows behind each other."""
    assert isinstance(node.args[0], tuple)
    variables = [var for var in node.args[0] if isinstance(var, Var)]
    dim = along(program, variables[0], argument(node, 1, "dim", 0))
    if any(var in program.rows and program.rows[var].dim != dim for var in variables):
        return None
    return [program.cutting.joined([program.rows_of(var, dim) for var in variables])]


def made(program: Ragged, node: Node) -> Results:
    """A tensor of one number, or of none, with a size that the data decides: whose rows it has shows where it is used."""
    program.blanks[node.outs[0]] = node
    return []


def repeated(program: Ragged, node: Node) -> Results:
    """One row, or one number, as often as the data decide: whatever rows it is used with, all are alike."""
    (out,), source = node.outs, node.args[0]
    first, *others = program.graph.types[out].shape
    if source not in program.values or source in program.rows or not isinstance(first, Sym):
        return None
    assert isinstance(source, Var)
    shape = program.values[source].shape
    if len(shape) > len(others) and shape[0] != 1:
        return None
    if not all(isinstance(size, int) for size in others):
        raise Unsupported("rows along another dim, of as many as the data decides")
    program.blanks[out] = node
    return []


def counted(program: Ragged, node: Node) -> Results:
    """``arange`` up to a number of rows: the places of whatever rows it is used with."""
    numbers = argument(node, 0, "end") if len(node.args) == 1 else None
    if numbers is None or node.op != aten.arange.default or program.graph.types[node.outs[0]].dtype != "int64":
        raise Unsupported("numbers in steps up to a number of rows")
    program.blanks[node.outs[0]] = node
    return []


SORTS: Final = frozenset((aten.sort.default, aten.sort.stable, aten.argsort.default, aten.argsort.stable))
MAKERS: Final = operators(lambda op: op.makes in ("empty", "zeros", "ones", "full") and op.shape_at is not None)
PUTS: Final = frozenset(
    (
        *(aten.index_add.default, aten.index_copy.default, aten.index_put.default),
        *(aten.scatter_add.default, aten.masked_scatter.default),
    )
)
_BY_OPERATOR: Final[dict[str, Move]] = {
    **dict.fromkeys(SORTS, choosing.sort),
    **dict.fromkeys(MAKERS, made),
    aten.arange.default: counted,
    aten.expand.default: repeated,
    aten.nonzero.default: choosing.nonzero,
    aten.index.Tensor: choosing.index,
    aten.index_select.default: choosing.index_select,
    aten.embedding.default: choosing.embedding,
    aten.masked_select.default: choosing.masked_select,
    aten.masked_scatter.default: adding.put_where_mask,
    aten.gather.default: choosing.gather,
    aten.scatter_add.default: adding.scatter_rows,
    aten.repeat_interleave.Tensor: repeat_interleave,
    aten.split_with_sizes.default: split,
    aten.slice.Tensor: cut,
    aten.cat.default: cat,
    aten.sum.dim_IntList: adding.total,
    aten.sum.default: adding.total,
    aten.mean.dim: adding.mean,
    aten.mean.default: adding.mean,
    aten.mm.default: adding.product,
    aten._grouped_mm.default: groups.grouped_product,
    aten.histc.default: groups.histogram,
    aten.index_add.default: adding.add_rows,
    aten.index_copy.default: adding.copy_rows,
    aten.index_put.default: adding.put_rows,
    aten.nll_loss_forward.default: nll_loss,
    aten.nll_loss_backward.default: nll_loss_backward,
}

MOVES: Final = Moves(SORTS, PUTS, _BY_OPERATOR)
