"""Losses of whole rows: closed functions of a row and its labels, batched over the rows.  ``reduction`` as in :mod:`graphguard.rules.layers.losses`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphguard.relations.algebra import Algebra, Unsupported, V
from graphguard.rules.basis.arithmetic import Number, as_float, times
from graphguard.rules.basis.registry import Call, rule
from graphguard.rules.layers.losses import reduced, spread_gradient


@rule("aten.multi_margin_loss.default")
def multi_margin_loss(
    a: Algebra[V],
    self: V,
    target: V,
    p: Number = 1,
    margin: Number = 1,
    weight: V | None = None,
    reduction: int = 1,
) -> V:
    """The loss of every row: closed, batched over the rows"""
    rows = "n"[: len(self.shape) - 1]
    operands = [(self, f"{rows}A"), (target, rows), *([] if weight is None else [(weight, "B")])]
    loss = a.opaque("multi_margin", (float(p), float(margin)), operands, rows, self.shape[:-1], "float")
    return reduced(a, loss, reduction)


@rule("aten.multi_margin_loss_backward.default")
def multi_margin_loss_backward(
    a: Algebra[V],
    grad_output: V,
    self: V,
    target: V,
    p: Number,
    margin: Number,
    weight: V | None = None,
    reduction: int = 1,
) -> V:
    """out = grad_output times the slope of every row, which is closed, batched over the rows"""
    rows = "n"[: len(self.shape) - 1]
    operands = [(self, f"{rows}A"), (target, rows), *([] if weight is None else [(weight, "B")])]
    slope = a.opaque("multi_margin.slope", (float(p), float(margin)), operands, f"{rows}C", self.shape, "float")
    return _of_rows(a, grad_output, slope, reduction)


@rule("aten.multilabel_margin_loss_forward.default")
def multilabel_margin_loss(a: Algebra[V], self: V, target: V, reduction: int) -> tuple[V, V]:
    """The loss of every row, and which classes are among its labels: closed, batched over the rows"""
    rows = "n"[: len(self.shape) - 1]
    operands = [(self, f"{rows}A"), (target, f"{rows}B")]
    loss = a.opaque("multilabel_margin", (), operands, rows, self.shape[:-1], "float")
    labelled = a.opaque("multilabel_margin.labelled", (), operands[1:], f"{rows}C", self.shape, "float")
    return reduced(a, loss, reduction), labelled


@rule("aten.multilabel_margin_loss_backward.default")
def multilabel_margin_loss_backward(
    a: Algebra[V], grad_output: V, self: V, target: V, reduction: int, is_target: V
) -> V:
    """out = grad_output times the slope of every row, which is closed, batched over the rows"""
    rows = "n"[: len(self.shape) - 1]
    operands = [(self, f"{rows}A"), (target, f"{rows}B"), (as_float(a, is_target), f"{rows}C")]
    slope = a.opaque("multilabel_margin.slope", (), operands, f"{rows}D", self.shape, "float")
    return _of_rows(a, grad_output, slope, reduction)


def _of_rows(a: Algebra[V], grad_output: V, slope: V, reduction: int) -> V:
    """The gradient of every row's loss times its slope."""
    rows = slope.shape[:-1]
    gradient = spread_gradient(a, grad_output, rows, reduction)
    result: V = times(a, a.reshape(gradient, (*rows, 1)), slope)
    return result


Lengths = Any  # numbers, or a value


@rule("aten._ctc_loss.default", "aten._ctc_loss.Tensor")
def ctc_loss(
    a: Algebra[V],
    log_probs: V,
    targets: V,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    zero_infinity: bool = False,
    *,
    call: Call,
) -> tuple[V, V]:
    """Minus the logarithm of every sequence's probability, and of those of its beginnings: closed, batched over the sequences"""
    operands = _sequences(a, log_probs, targets, input_lengths, target_lengths)
    loss = a.opaque("ctc", (blank, zero_infinity), operands, "n", call.shape(0), "float")
    return loss, a.opaque("ctc.beginnings", (blank, zero_infinity), operands, "nDE", call.shape(1), "float")


@rule("aten._ctc_loss_backward.default", "aten._ctc_loss_backward.Tensor")
def ctc_loss_backward(
    a: Algebra[V],
    grad: V,
    log_probs: V,
    targets: V,
    input_lengths: Lengths,
    target_lengths: Lengths,
    neg_log_likelihood: V,
    log_alpha: V,
    blank: int,
    zero_infinity: bool = False,
) -> V:
    """out = grad times the slope of every sequence, which is closed, batched over the sequences"""
    operands = _sequences(a, log_probs, targets, input_lengths, target_lengths)
    operands += [(neg_log_likelihood, "n"), (log_alpha, "nDE")]
    slope = a.opaque("ctc.slope", (blank, zero_infinity), operands, "FnG", log_probs.shape, "float")
    return a.contract([(grad, "n"), (slope, "tnc")], "tnc")


def _sequences(
    a: Algebra[V], log_probs: V, targets: V, input_lengths: Lengths, target_lengths: Lengths
) -> list[tuple[V, str]]:
    if len(log_probs.shape) != 3 or len(targets.shape) != 2:
        raise Unsupported("labels of all sequences in one line")
    lengths = [a.literal(np.array(v)) if isinstance(v, Sequence) else v for v in (input_lengths, target_lengths)]
    return [(log_probs, "AnB"), (targets, "nC"), *((v, "n") for v in lengths)]
