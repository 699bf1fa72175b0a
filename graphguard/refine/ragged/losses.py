"""Losses over rows whose number the data decides."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from graphguard.ir import Node, Var
from graphguard.refine.ragged.orders import Rows
from graphguard.refine.ragged.program import Ragged
from graphguard.relations.algebra import Unsupported
from graphguard.relations.terms.values import NormalValue
from graphguard.rules.basis.arithmetic import over
from graphguard.rules.layers.losses import MEAN, NONE


def nll_loss(program: Ragged, node: Node) -> list[Rows | NormalValue]:
    """The loss of every row, added up over the rows or averaged; and the number of rows."""
    self, target, weight, reduction, ignored = node.args
    scores = _with_classes(program, self, target, weight, ignored)
    each = replace(node, args=(self, target, weight, NONE, ignored))
    data = {self: scores.data, target: program.rows_of(target).data}
    shapes = {node.outs[0]: (scores.order.slots,), node.outs[1]: ()}
    loss = Rows(program.evaluated(each, data, shapes)[0], scores.order)  # type: ignore[arg-type]
    amount = program.orders.length(scores.order)
    if reduction == NONE:
        return [loss, program.algebra.full((), Fraction(0), "float")]
    total = program.algebra.sum(program.orders.masked(loss), (0,))
    return [over(program.algebra, total, amount) if reduction == MEAN else total, amount]


def nll_loss_backward(program: Ragged, node: Node) -> list[Rows | NormalValue]:
    """The gradient of every row's scores."""
    grad, self, target, weight, _, ignored, total = node.args
    scores = _with_classes(program, self, target, weight, ignored)
    data = {self: scores.data, target: program.rows_of(target).data, total: program.value_of(total)}
    rows = program.rows.get(grad) if isinstance(grad, Var) else None
    if rows is not None and not program.orders.alike(rows.order, scores.order):
        raise Unsupported("rows of two tensors that are not seen to belong together")
    data[grad] = rows.data if rows is not None else program.value_of(grad)
    (result,) = program.evaluated(node, data, {node.outs[0]: scores.data.shape})  # type: ignore[arg-type]
    return [Rows(result, scores.order)]


def _with_classes(program: Ragged, self: object, target: object, weight: object, ignored: object) -> Rows:
    """The scores, if every target is a class whose loss counts once."""
    if not isinstance(self, Var) or not isinstance(target, Var) or weight is not None:
        raise Unsupported("a loss with weights over rows that the data decides")
    scores, classes = program.rows_of(self), program.rows_of(target)
    if len(scores.data.shape) != 2 or scores.target is not None or classes.target is not None:
        raise Unsupported("a loss of several dims over rows that the data decides")
    program.orders.need_alike(scores.order, classes.order)
    program.lies_within(classes, scores.data.shape[1], always=True)
    if isinstance(ignored, int) and 0 <= ignored < scores.data.shape[1]:
        raise Unsupported("a loss that ignores a class, over rows that the data decides")
    return scores
