"""Fused optimiser steps: one step of the documented algorithm for every tensor of the lists.

Results come list after list, as the functional schema gives them.  Gradients are returned as they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphguard.relations.algebra import Algebra, Unsupported, V
from graphguard.rules.basis.arithmetic import (
    Number,
    as_float,
    is_number,
    larger,
    minus,
    negative,
    over,
    plus,
    root,
    square,
    times,
)
from graphguard.rules.basis.registry import Call, rule
from graphguard.rules.basis.scalars import exact
from graphguard.rules.elements.elementwise import lerp, pow_base


def _unscaled(grad_scale: V | None, found_inf: V | None) -> None:
    if grad_scale is not None or found_inf is not None:
        raise Unsupported("a fused optimiser step with gradient scaling")


def _decayed(a: Algebra[V], gradient: V, parameter: V, weight_decay: Number, maximize: bool) -> V:
    """gradient (negated where the objective is maximised) + weight_decay parameter."""
    gradient = negative(a, gradient) if maximize else gradient
    return plus(a, gradient, times(a, parameter, weight_decay)) if weight_decay else gradient


def _correction(a: Algebra[V], beta: Number, step: V) -> V:
    """1 - beta^step."""
    known = a.known(step)
    if known is not None and known.size == 1:
        return minus(a, 1, a.full(step.shape, _power(beta, float(known.reshape(-1)[0])), "float"))
    return minus(a, 1, pow_base(a, beta, as_float(a, step)))


def _power(beta: Number, step: float) -> Any:
    base = exact(beta)
    return base ** int(step) if step == int(step) else float(beta) ** step


def _adam(a: Algebra[V], lists: Sequence[Sequence[V]], decoupled: bool, lr: Any, options: dict[str, Any]) -> list[V]:
    parameters, gradients, firsts, seconds, largest, steps = lists
    done: list[list[V]] = [[], [], [], [], []]
    for index, parameter in enumerate(parameters):
        second_max = largest[index] if options["amsgrad"] else None
        state = (parameter, gradients[index], firsts[index], seconds[index], second_max, steps[index])
        results = _adam_one(a, state, decoupled, lr, options)
        for place, result in zip(done, results, strict=True):
            if result is not None:
                place.append(result)
    return [v for place in done for v in place]


def _adam_one(
    a: Algebra[V],
    state: tuple[V, V, V, V, V | None, V],
    decoupled: bool,
    lr: Any,
    options: dict[str, Any],
) -> tuple[V, V, V, V, V | None]:
    parameter, given, first, second, largest, step = state
    decay = options["weight_decay"]
    gradient = _decayed(a, given, parameter, 0 if decoupled else decay, options["maximize"])
    if decoupled and decay:
        rate = lr * decay if is_number(lr) else times(a, lr, decay)
        parameter = minus(a, parameter, times(a, parameter, rate))
    beta1, beta2 = options["beta1"], options["beta2"]
    first = lerp(a, first, gradient, 1 - beta1)
    second = lerp(a, second, square(a, gradient), 1 - beta2)
    largest = larger(a, largest, second) if largest is not None else None
    spread = second if largest is None else largest
    size = over(a, lr, _correction(a, beta1, step))
    denominator = plus(a, over(a, root(a, spread), root(a, _correction(a, beta2, step))), options["eps"])
    updated = minus(a, parameter, over(a, times(a, first, size), denominator))
    return updated, given, first, second, largest


@rule("aten._fused_adam.default", "aten._fused_adam.tensor_lr")
def fused_adam(
    a: Algebra[V],
    self: Sequence[V],
    grads: Sequence[V],
    exp_avgs: Sequence[V],
    exp_avg_sqs: Sequence[V],
    max_exp_avg_sqs: Sequence[V],
    state_steps: Sequence[V],
    *,
    lr: Any,
    grad_scale: V | None = None,
    found_inf: V | None = None,
    **options: Any,
) -> list[V]:
    """m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; p = p - lr / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + eps), g with weight_decay p"""
    _unscaled(grad_scale, found_inf)
    lists = (self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps)
    return _adam(a, lists, False, lr, options)


@rule("aten._fused_adamw.default", "aten._fused_adamw.tensor_lr")
def fused_adamw(
    a: Algebra[V],
    self: Sequence[V],
    grads: Sequence[V],
    exp_avgs: Sequence[V],
    exp_avg_sqs: Sequence[V],
    max_exp_avg_sqs: Sequence[V],
    state_steps: Sequence[V],
    *,
    lr: Any,
    grad_scale: V | None = None,
    found_inf: V | None = None,
    **options: Any,
) -> list[V]:
    """As _fused_adam, but p = p - lr weight_decay p comes first and g is left alone"""
    _unscaled(grad_scale, found_inf)
    lists = (self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps)
    return _adam(a, lists, True, lr, options)


@rule("aten._fused_sgd.default", "aten._fused_sgd.tensor_lr")
def fused_sgd(
    a: Algebra[V],
    self: Sequence[V],
    grads: Sequence[V],
    momentum_buffer_list: Sequence[V],
    *,
    weight_decay: Number,
    momentum: Number,
    lr: Any,
    dampening: Number,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: V | None = None,
    found_inf: V | None = None,
) -> list[V]:
    """b = momentum b + (1 - dampening) g (g at first); p = p - lr b, or p - lr (g + momentum b) with nesterov"""
    _unscaled(grad_scale, found_inf)
    parameters, buffers = [], []
    for index, parameter in enumerate(self):
        step = _decayed(a, grads[index], parameter, weight_decay, maximize)
        if momentum:
            kept = times(a, momentum_buffer_list[index], momentum)
            buffer = step if is_first_step else plus(a, kept, times(a, step, 1 - dampening))
            buffers.append(buffer)
            step = plus(a, step, times(a, buffer, momentum)) if nesterov else buffer
        parameters.append(minus(a, parameter, times(a, step, lr)))
    return [*parameters, *grads, *buffers]


@rule("aten._fused_adagrad.default", "aten._fused_adagrad.tensor_lr")
def fused_adagrad(
    a: Algebra[V],
    self: Sequence[V],
    grads: Sequence[V],
    state_sums: Sequence[V],
    state_steps: Sequence[V],
    *,
    lr: Any,
    lr_decay: Number,
    weight_decay: Number,
    eps: Number,
    maximize: bool,
    grad_scale: V | None = None,
    found_inf: V | None = None,
    call: Call,
) -> list[V]:
    """s = s + g^2; p = p - lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps)"""
    _unscaled(grad_scale, found_inf)
    parameters, sums = [], []
    for index, parameter in enumerate(self):
        gradient = _decayed(a, grads[index], parameter, weight_decay, maximize)
        total = plus(a, state_sums[index], square(a, gradient))
        sums.append(total)
        later = plus(a, times(a, plus(a, as_float(a, state_steps[index]), -1), lr_decay), 1)
        rate = over(a, lr, later) if lr_decay else lr
        parameters.append(minus(a, parameter, over(a, times(a, gradient, rate), plus(a, root(a, total), eps))))
    results = [*parameters, *grads, *sums, *state_steps]
    return results[: len(call.node.outs)]
