"""Losses and their gradients.  ``reduction`` is 0 for none, 1 for the mean, 2 for the sum."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

import numpy as np

from graphguard.relations.algebra import Algebra, Unsupported, V
from graphguard.rules.basis.arithmetic import (
    LETTERS,
    Number,
    chosen,
    compared,
    expanded,
    function,
    minus,
    negative,
    over,
    plus,
    scaled,
    square,
    times,
)
from graphguard.rules.basis.index_maps import in_few_pieces, put, take
from graphguard.rules.basis.registry import rule
from graphguard.rules.basis.scalars import exact
from graphguard.rules.elements.activations import sigmoid_of
from graphguard.rules.lines.contraction import contracted
from graphguard.rules.lines.softmax import log_softmax_over

NONE: Final = 0
MEAN: Final = 1
#: Below every range that a program declares.
UNBOUNDED: Final = -(2**40)


def reduced(a: Algebra[V], loss: V, reduction: int) -> V:
    """The loss of every element, their mean, or their sum."""
    if reduction == NONE:
        return loss
    result = a.sum(loss, range(len(loss.shape))) if loss.shape else loss
    return scaled(a, result, Fraction(1, math.prod(loss.shape))) if reduction == MEAN else result


def spread_gradient(a: Algebra[V], grad_output: V, shape: tuple[int, ...], reduction: int) -> V:
    """The gradient of every element's loss."""
    gradient = expanded(a, grad_output, shape)
    return scaled(a, gradient, Fraction(1, math.prod(shape))) if reduction == MEAN else gradient


# -- negative log likelihood
def _classes_last(a: Algebra[V], v: V) -> V:
    """(C), (N, C) or (N, C, d1, ...) as (..., C)."""
    rank = len(v.shape)
    return a.permute(v, [0, *range(2, rank), 1]) if rank > 2 else v


def _classes_back(a: Algebra[V], v: V) -> V:
    rank = len(v.shape)
    return a.permute(v, [0, rank - 1, *range(1, rank - 1)]) if rank > 2 else v


def target_weights(a: Algebra[V], target: V, classes: int, weight: V | None, ignore_index: int) -> tuple[V, V | None]:
    """The one-hot targets, and each position's weight: 0 where ignored; None where all weigh 1.

    Targets that may bear an ``ignore_index`` outside the classes, as their declared range says, have no 1 in their row there.
    Of targets of which nothing is declared, the look-up says that every one is a class.
    """
    hot: V | None = None
    if 0 <= ignore_index < classes or not _may_be(a, target, ignore_index):
        hot = _checked(a, target, classes)
    marked = 0 <= ignore_index < classes or hot is None
    hot = a.one_hot(target, classes) if hot is None else hot
    counted = chosen(a, compared(a, "ne", target, ignore_index), 1.0, 0.0) if marked else None
    if weight is not None:
        lead = LETTERS[: len(target.shape)]
        of_class = contracted(a, f"{lead}z,z->{lead}", hot, weight)
        counted = of_class if counted is None else times(a, of_class, counted)
    return hot, counted


def _checked(a: Algebra[V], target: V, classes: int) -> V | None:
    try:
        return a.one_hot(target, classes, checked=True)
    except Unsupported:
        return None


def _may_be(a: Algebra[V], v: V, number: int) -> bool:
    """Whether the declared range of v holds a number; not so where no range is declared."""
    differs = a.known(compared(a, "ne", v, number))
    bounded = a.known(compared(a, "gt", v, UNBOUNDED))
    return bounded is not None and bool(bounded.all()) and (differs is None or not bool(differs.all()))


def _chosen_likelihood(a: Algebra[V], scores: V, target: V, hot: V) -> V:
    """scores[..., target]; 0 where no class is."""
    known = a.known(target)
    classes = scores.shape[-1]
    if known is not None and known.size and in_few_pieces(known) and known.min() >= 0 and known.max() < classes:
        flat = a.reshape(scores, (math.prod(scores.shape),))
        return a.reshape(take(a, flat, 0, np.arange(known.size) * classes + known.reshape(-1)), target.shape)
    lead = LETTERS[: len(hot.shape) - 1]
    return contracted(a, f"{lead}z,{lead}z->{lead}", scores, hot)


def _at_targets(a: Algebra[V], factor: V, target: V, hot: V) -> V:
    """factor at [..., target], 0 elsewhere."""
    known, classes = a.known(target), hot.shape[-1]
    if known is not None and known.size and in_few_pieces(known) and known.min() >= 0 and known.max() < classes:
        zeros = a.full((known.size * classes,), Fraction(0), "float")
        positions = np.arange(known.size) * classes + known.reshape(-1)
        return a.reshape(put(a, zeros, 0, positions, a.reshape(factor, (known.size,))), (*target.shape, classes))
    lead = LETTERS[: len(target.shape)]
    return contracted(a, f"{lead},{lead}z->{lead}z", factor, hot)


@rule("aten.nll_loss_forward.default", "aten.nll_loss2d_forward.default")
def nll_loss_forward(
    a: Algebra[V], self: V, target: V, weight: V | None, reduction: int, ignore_index: int
) -> tuple[V, V]:
    """(loss, total weight): loss = -sum w self[target] / sum w, w = weight[target] or 1, 0 where target = ignore_index"""
    scores = _classes_last(a, self)
    hot, counted = target_weights(a, target, scores.shape[-1], weight, ignore_index)
    loss = negative(a, _chosen_likelihood(a, scores, target, hot))
    loss = loss if counted is None else times(a, loss, counted)
    every = range(len(target.shape))
    if counted is None:
        amount = a.full((), Fraction(math.prod(target.shape)), "float")
    else:
        amount = a.sum(counted, every) if target.shape else counted
    if reduction == NONE:
        return loss, a.full((), Fraction(0), "float")
    result = a.sum(loss, every) if target.shape else loss
    if reduction == MEAN:
        result = over(a, result, math.prod(target.shape) if counted is None else amount)
    return result, amount


@rule("aten.nll_loss_backward.default", "aten.nll_loss2d_backward.default")
def nll_loss_backward(
    a: Algebra[V],
    grad_output: V,
    self: V,
    target: V,
    weight: V | None,
    reduction: int,
    ignore_index: int,
    total_weight: V,
) -> V:
    """out[n, c] = -grad_output w [target[n] = c], over the total weight for the mean"""
    classes = self.shape[1] if len(self.shape) > 1 else self.shape[0]
    hot, counted = target_weights(a, target, classes, weight, ignore_index)
    factor = negative(a, expanded(a, grad_output, target.shape))
    factor = factor if counted is None else times(a, factor, counted)
    if reduction == MEAN:
        factor = over(a, factor, total_weight)
    return _classes_back(a, _at_targets(a, factor, target, hot))


@rule("aten.nll_loss.default", "aten.nll_loss2d.default", "aten.nll_loss_nd.default")
def nll_loss(
    a: Algebra[V],
    self: V,
    target: V,
    weight: V | None = None,
    reduction: int = MEAN,
    ignore_index: int = -100,
) -> V:
    """out = -sum w self[target] / sum w"""
    return nll_loss_forward(a, self, target, weight, reduction, ignore_index)[0]


@rule("aten.cross_entropy_loss.default")
def cross_entropy_loss(
    a: Algebra[V],
    self: V,
    target: V,
    weight: V | None = None,
    reduction: int = MEAN,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> V:
    """out = -sum w log_softmax(self)[target] / sum w"""
    if label_smoothing or target.kind == "float":
        raise Unsupported("cross entropy with soft labels")
    scores = log_softmax_over(a, self, 1 if len(self.shape) > 1 else 0)
    return nll_loss(a, scores, target, weight, reduction, ignore_index)


# -- elementwise losses
@rule("aten.mse_loss.default")
def mse_loss(a: Algebra[V], self: V, target: V, reduction: int = MEAN) -> V:
    """loss = (self - target)^2"""
    return reduced(a, square(a, minus(a, self, target)), reduction)


@rule("aten.mse_loss_backward.default")
def mse_loss_backward(a: Algebra[V], grad_output: V, self: V, target: V, reduction: int) -> V:
    """out = grad_output 2 (self - target), over the number of elements for the mean"""
    difference = minus(a, self, target)
    gradient = spread_gradient(a, grad_output, difference.shape, reduction)
    return scaled(a, times(a, gradient, difference), Fraction(2))


@rule("aten.l1_loss.default")
def l1_loss(a: Algebra[V], self: V, target: V, reduction: int = MEAN) -> V:
    """loss = abs(self - target)"""
    return reduced(a, function(a, "abs", minus(a, self, target)), reduction)


def _huber(a: Algebra[V], self: V, target: V, delta: Number) -> tuple[V, V, V]:
    """Difference, its size, and whether it is below delta."""
    difference = minus(a, self, target)
    size = function(a, "abs", difference)
    return difference, size, compared(a, "lt", size, delta)


@rule("aten.huber_loss.default")
def huber_loss(a: Algebra[V], self: V, target: V, reduction: int = MEAN, delta: Number = 1.0) -> V:
    """loss = d^2 / 2 if abs(d) < delta else delta (abs(d) - delta / 2), d = self - target"""
    difference, size, near = _huber(a, self, target, delta)
    far = times(a, plus(a, size, -exact(delta) / 2), delta)
    return reduced(a, chosen(a, near, scaled(a, square(a, difference), Fraction(1, 2)), far), reduction)


@rule("aten.huber_loss_backward.default")
def huber_loss_backward(a: Algebra[V], grad_output: V, self: V, target: V, reduction: int, delta: Number) -> V:
    """out = grad_output (d if abs(d) < delta else delta sign(d)), d = self - target"""
    difference, _, near = _huber(a, self, target, delta)
    slope = chosen(a, near, difference, times(a, function(a, "sign", difference), delta))
    return times(a, spread_gradient(a, grad_output, difference.shape, reduction), slope)


@rule("aten.smooth_l1_loss.default")
def smooth_l1_loss(a: Algebra[V], self: V, target: V, reduction: int = MEAN, beta: Number = 1.0) -> V:
    """loss = d^2 / (2 beta) if abs(d) < beta else abs(d) - beta / 2, d = self - target"""
    if beta == 0:
        return l1_loss(a, self, target, reduction)
    difference, size, near = _huber(a, self, target, beta)
    inside = over(a, scaled(a, square(a, difference), Fraction(1, 2)), beta)
    return reduced(a, chosen(a, near, inside, plus(a, size, -exact(beta) / 2)), reduction)


@rule("aten.smooth_l1_loss_backward.default")
def smooth_l1_loss_backward(a: Algebra[V], grad_output: V, self: V, target: V, reduction: int, beta: Number) -> V:
    """out = grad_output (d / beta if abs(d) < beta else sign(d)), d = self - target"""
    difference, _, near = _huber(a, self, target, beta)
    sign = function(a, "sign", difference)
    slope = sign if beta == 0 else chosen(a, near, over(a, difference, beta), sign)
    return times(a, spread_gradient(a, grad_output, difference.shape, reduction), slope)


@rule("aten.binary_cross_entropy.default")
def binary_cross_entropy(a: Algebra[V], self: V, target: V, weight: V | None = None, reduction: int = MEAN) -> V:
    """loss = -weight (target log(self) + (1 - target) log(1 - self))"""
    first = times(a, target, a.log(self))
    second = times(a, minus(a, 1, target), a.log(minus(a, 1, self)))
    loss = negative(a, plus(a, first, second))
    return reduced(a, loss if weight is None else times(a, loss, weight), reduction)


@rule("aten.binary_cross_entropy_backward.default")
def binary_cross_entropy_backward(
    a: Algebra[V], grad_output: V, self: V, target: V, weight: V | None = None, reduction: int = MEAN
) -> V:
    """out = grad_output weight (self - target) / (self (1 - self))"""
    slope = over(a, minus(a, self, target), times(a, self, minus(a, 1, self)))
    slope = slope if weight is None else times(a, slope, weight)
    return times(a, spread_gradient(a, grad_output, slope.shape, reduction), slope)


@rule("aten.binary_cross_entropy_with_logits.default")
def binary_cross_entropy_with_logits(
    a: Algebra[V],
    self: V,
    target: V,
    weight: V | None = None,
    pos_weight: V | None = None,
    reduction: int = MEAN,
) -> V:
    """loss = -weight (pos_weight target log(sigmoid(self)) + (1 - target) log(sigmoid(-self)))"""
    first = times(a, target, a.log(sigmoid_of(a, self)))
    first = first if pos_weight is None else times(a, first, pos_weight)
    second = times(a, minus(a, 1, target), a.log(sigmoid_of(a, negative(a, self))))
    loss = negative(a, plus(a, first, second))
    return reduced(a, loss if weight is None else times(a, loss, weight), reduction)


@rule("aten.kl_div.default")
def kl_div(a: Algebra[V], self: V, target: V, reduction: int = MEAN, *, log_target: bool = False) -> V:
    """loss = target (log(target) - self), or exp(target) (target - self) for a target that is a logarithm"""
    if log_target:
        loss = times(a, a.exp(target), minus(a, target, self))
    else:
        loss = times(a, target, minus(a, a.log(target), self))
    return reduced(a, loss, reduction)


@rule("aten.soft_margin_loss.default")
def soft_margin_loss(a: Algebra[V], self: V, target: V, reduction: int = MEAN) -> V:
    """loss = log(1 + exp(-target self)) = -log(sigmoid(target self))"""
    return reduced(a, negative(a, a.log(sigmoid_of(a, times(a, target, self)))), reduction)


@rule("aten.soft_margin_loss_backward.default")
def soft_margin_loss_backward(a: Algebra[V], grad_output: V, self: V, target: V, reduction: int) -> V:
    """out = -grad_output target sigmoid(-target self)"""
    slope = negative(a, times(a, target, sigmoid_of(a, negative(a, times(a, target, self)))))
    return times(a, spread_gradient(a, grad_output, slope.shape, reduction), slope)
