"""Activation functions and their gradients."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Final

from graphguard.relations.algebra import Algebra, V
from graphguard.rules.basis.arithmetic import (
    Number,
    chosen,
    compared,
    function,
    larger,
    minus,
    negative,
    over,
    plus,
    product,
    scaled,
    square,
    times,
)
from graphguard.rules.basis.registry import Call, rule
from graphguard.rules.basis.scalars import exact
from graphguard.rules.elements.elementwise import add, clamped


@rule("aten.hardtanh.default")
def hardtanh(a: Algebra[V], self: V, min_val: Number = -1, max_val: Number = 1) -> V:
    """out = min(max(self, min_val), max_val)"""
    return clamped(a, self, min_val, max_val)


@rule("aten.hardtanh_backward.default")
def hardtanh_backward(a: Algebra[V], grad_output: V, self: V, min_val: Number, max_val: Number) -> V:
    """out = grad_output [min_val < self < max_val]"""
    inside = a.logical_and(compared(a, "gt", self, min_val), compared(a, "lt", self, max_val))
    return chosen(a, inside, grad_output, 0)


@rule("aten.relu.default")
def relu(a: Algebra[V], self: V) -> V:
    """out = max(self, 0)"""
    return larger(a, self, 0)


@rule("aten._add_relu.Tensor", casts=True)
def add_relu(a: Algebra[V], self: V, other: Any, alpha: Number = 1) -> V:
    """out = max(self + alpha other, 0)"""
    return larger(a, add(a, self, other, alpha), 0)


@rule("aten.softshrink.default")
def softshrink(a: Algebra[V], self: V, lambd: Number = 0.5) -> V:
    """out = self - lambd if self > lambd, self + lambd if self < -lambd, else 0"""
    below = chosen(a, compared(a, "lt", self, -lambd), plus(a, self, lambd), 0.0)
    return chosen(a, compared(a, "gt", self, lambd), plus(a, self, -lambd), below)


@rule("aten.hardshrink.default")
def hardshrink(a: Algebra[V], self: V, lambd: Number = 0.5) -> V:
    """out = 0 if -lambd <= self <= lambd, else self"""
    return chosen(a, _within(a, self, lambd), 0.0, self)


@rule("aten.softshrink_backward.default", "aten.hardshrink_backward.default")
def shrink_backward(a: Algebra[V], grad_output: V, self: V, lambd: Number) -> V:
    """out = 0 if -lambd <= self <= lambd, else grad_output"""
    return chosen(a, _within(a, self, lambd), 0.0, grad_output)


def _within(a: Algebra[V], v: V, bound: Number) -> V:
    return a.logical_and(compared(a, "ge", v, -bound), compared(a, "le", v, bound))


@rule("aten.relu6.default")
def relu6(a: Algebra[V], self: V) -> V:
    """out = min(max(self, 0), 6)"""
    return clamped(a, self, 0, 6)


@rule("aten.threshold.default")
def threshold(a: Algebra[V], self: V, threshold: Number, value: Number) -> V:
    """out = value if self <= threshold else self"""
    return chosen(a, compared(a, "le", self, threshold), value, self)


@rule("aten.threshold_backward.default")
def threshold_backward(a: Algebra[V], grad_output: V, self: V, threshold: Number) -> V:
    """out = 0 if self <= threshold else grad_output"""
    return chosen(a, compared(a, "le", self, threshold), 0, grad_output)


@rule("aten.leaky_relu.default")
def leaky_relu(a: Algebra[V], self: V, negative_slope: Number = 0.01) -> V:
    """out = self if self > 0 else negative_slope self"""
    return chosen(a, compared(a, "gt", self, 0), self, times(a, self, negative_slope))


@rule("aten.leaky_relu_backward.default")
def leaky_relu_backward(a: Algebra[V], grad_output: V, self: V, negative_slope: Number, self_is_result: bool) -> V:
    """out = grad_output if self > 0 else negative_slope grad_output"""
    return chosen(a, compared(a, "gt", self, 0), grad_output, times(a, grad_output, negative_slope))


@rule("aten.prelu.default", "aten._prelu_kernel.default")
def prelu(a: Algebra[V], self: V, weight: V) -> V:
    """out = self if self > 0 else weight self, one weight per channel (dim 1)"""
    if len(weight.shape) == 1 and weight.shape[0] > 1:
        weight = a.reshape(weight, (weight.shape[0], *(1 for _ in self.shape[2:])))
    return chosen(a, compared(a, "gt", self, 0), self, times(a, self, weight))


@rule("aten._prelu_kernel_backward.default")
def prelu_backward(a: Algebra[V], grad_output: V, self: V, weight: V) -> tuple[V, V]:
    """grad_self = grad_output (1 or weight); grad_weight = grad_output min(self, 0)"""
    positive = compared(a, "gt", self, 0)
    grad_self = chosen(a, positive, grad_output, times(a, grad_output, weight))
    return grad_self, chosen(a, positive, 0, times(a, grad_output, self))


def sigmoid_of(a: Algebra[V], v: V) -> V:
    """1 / (1 + exp(-v))."""
    return function(a, "sigmoid", v)


@rule("aten.sigmoid_backward.default")
def sigmoid_backward(a: Algebra[V], grad_output: V, output: V) -> V:
    """out = grad_output output (1 - output)"""
    return product(a, grad_output, output, minus(a, 1, output))


@rule("aten.tanh_backward.default")
def tanh_backward(a: Algebra[V], grad_output: V, output: V) -> V:
    """out = grad_output (1 - output output)"""
    return times(a, grad_output, minus(a, 1, square(a, output)))


@rule("aten.silu.default")
def silu(a: Algebra[V], self: V) -> V:
    """out = self sigmoid(self)"""
    return times(a, self, sigmoid_of(a, self))


@rule("aten.silu_backward.default")
def silu_backward(a: Algebra[V], grad_output: V, self: V) -> V:
    """out = grad_output s (1 + self (1 - s)), s = sigmoid(self)"""
    s = sigmoid_of(a, self)
    return product(a, grad_output, s, plus(a, 1, times(a, self, minus(a, 1, s))))


@rule("aten.log_sigmoid.default")
def log_sigmoid(a: Algebra[V], self: V) -> V:
    """out = log(sigmoid(self))"""
    return a.log(sigmoid_of(a, self))


@rule("aten.log_sigmoid_forward.default")
def log_sigmoid_forward(a: Algebra[V], self: V, *, call: Call) -> tuple[V, V]:
    """output = log(sigmoid(self)); buffer = exp(-abs(self)), an implementation's own"""
    buffer = call.shape(1)
    unused = (
        a.exp(negative(a, function(a, "abs", self))) if buffer == self.shape else a.full(buffer, Fraction(0), "float")
    )
    return a.log(sigmoid_of(a, self)), unused


@rule("aten.log_sigmoid_backward.default")
def log_sigmoid_backward(a: Algebra[V], grad_output: V, self: V, buffer: V) -> V:
    """out = grad_output sigmoid(-self)"""
    return times(a, grad_output, sigmoid_of(a, negative(a, self)))


#: The least threshold of softplus beyond which nobody tells it from the straight line in float32: PyTorch's own.
NEGLIGIBLE: Final = 20


@rule("aten.softplus.default")
def softplus(a: Algebra[V], self: V, beta: Number = 1, threshold: Number = 20) -> V:
    """out = log(1 + exp(beta self)) / beta = -log(sigmoid(-beta self)) / beta; a threshold below PyTorch's own: self where beta self is larger"""
    smooth = over(a, negative(a, a.log(sigmoid_of(a, times(a, negative(a, self), beta)))), beta)
    return _beyond(a, threshold, times(a, self, beta), self, smooth)


@rule("aten.softplus_backward.default")
def softplus_backward(a: Algebra[V], grad_output: V, self: V, beta: Number, threshold: Number) -> V:
    """out = grad_output sigmoid(beta self); a threshold below PyTorch's own: grad_output where beta self is larger"""
    smooth = times(a, grad_output, sigmoid_of(a, times(a, self, beta)))
    return _beyond(a, threshold, times(a, self, beta), grad_output, smooth)


def _beyond(a: Algebra[V], threshold: Number, v: V, line: V, smooth: V) -> V:
    """The straight line where v is beyond the threshold."""
    return smooth if threshold >= NEGLIGIBLE else chosen(a, compared(a, "gt", v, threshold), line, smooth)


def normal_distribution(a: Algebra[V], v: V) -> V:
    """(1 + erf(v / sqrt 2)) / 2."""
    return scaled(a, plus(a, function(a, "erf", scaled(a, v, exact(1 / math.sqrt(2)))), 1), Fraction(1, 2))


CUBIC: Final = 0.044715


def gelu_argument(a: Algebra[V], v: V) -> V:
    """sqrt(2 / pi) (v + 0.044715 v^3)."""
    inner = plus(a, v, times(a, a.power(v, Fraction(3)), CUBIC))
    return scaled(a, inner, exact(math.sqrt(2 / math.pi)))


@rule("aten.gelu.default")
def gelu(a: Algebra[V], self: V, *, approximate: str = "none") -> V:
    """out = self (1 + erf(self / sqrt 2)) / 2, or self (1 + tanh(sqrt(2 / pi) (self + 0.044715 self^3))) / 2"""
    if approximate == "none":
        return times(a, self, normal_distribution(a, self))
    tanh = function(a, "tanh", gelu_argument(a, self))
    return scaled(a, times(a, self, plus(a, tanh, 1)), Fraction(1, 2))


@rule("aten.gelu_backward.default")
def gelu_backward(a: Algebra[V], grad_output: V, self: V, *, approximate: str = "none") -> V:
    """out = grad_output d gelu / d self"""
    if approximate == "none":
        half = scaled(a, square(a, self), Fraction(-1, 2))
        density = scaled(a, a.exp(half), exact(1 / math.sqrt(2 * math.pi)))
        return times(a, grad_output, plus(a, normal_distribution(a, self), times(a, self, density)))
    tanh = function(a, "tanh", gelu_argument(a, self))
    slope = scaled(a, plus(a, times(a, square(a, self), 3 * exact(CUBIC)), 1), exact(math.sqrt(2 / math.pi)))
    rest = product(a, self, minus(a, 1, square(a, tanh)), slope)
    return times(a, grad_output, scaled(a, plus(a, tanh, 1, rest), Fraction(1, 2)))


@rule("aten.elu.default")
def elu(a: Algebra[V], self: V, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> V:
    """out = scale (self if self > 0 else alpha (exp(input_scale self) - 1))"""
    low = times(a, plus(a, a.exp(times(a, self, input_scale)), -1), alpha)
    return times(a, chosen(a, compared(a, "gt", self, 0), self, low), scale)


@rule("aten.elu_backward.default")
def elu_backward(
    a: Algebra[V],
    grad_output: V,
    alpha: Number,
    scale: Number,
    input_scale: Number,
    is_result: bool,
    self_or_result: V,
) -> V:
    """out = grad_output scale (1 if self > 0 else alpha input_scale exp(input_scale self))"""
    x = self_or_result
    if is_result:
        low = times(a, plus(a, x, times(a, a.full(x.shape, exact(alpha), "float"), scale)), input_scale)
    else:
        low = times(a, a.exp(times(a, x, input_scale)), exact(scale) * exact(alpha) * exact(input_scale))
    return chosen(a, compared(a, "gt", x, 0), times(a, grad_output, scale), times(a, grad_output, low))


@rule("aten.celu.default")
def celu(a: Algebra[V], self: V, alpha: Number = 1.0) -> V:
    """out = self if self > 0 else alpha (exp(self / alpha) - 1)"""
    low = times(a, plus(a, a.exp(over(a, self, alpha)), -1), alpha)
    return chosen(a, compared(a, "gt", self, 0), self, low)


@rule("aten.selu.default")
def selu(a: Algebra[V], self: V) -> V:
    """out = scale (self if self > 0 else alpha (exp(self) - 1)), alpha 1.6733, scale 1.0507"""
    return elu(a, self, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


@rule("aten.mish.default")
def mish(a: Algebra[V], self: V) -> V:
    """out = self tanh(softplus(self))"""
    return times(a, self, function(a, "tanh", softplus(a, self)))


@rule("aten.mish_backward.default")
def mish_backward(a: Algebra[V], grad_output: V, self: V) -> V:
    """out = grad_output (t + self (1 - t t) sigmoid(self)), t = tanh(softplus(self))"""
    t = function(a, "tanh", softplus(a, self))
    slope = product(a, self, minus(a, 1, square(a, t)), sigmoid_of(a, self))
    return times(a, grad_output, plus(a, t, slope))


@rule("aten.hardsigmoid.default")
def hardsigmoid(a: Algebra[V], self: V) -> V:
    """out = min(max(self + 3, 0), 6) / 6"""
    return over(a, clamped(a, plus(a, self, 3), 0, 6), 6)


@rule("aten.hardsigmoid_backward.default")
def hardsigmoid_backward(a: Algebra[V], grad_output: V, self: V) -> V:
    """out = grad_output / 6 [-3 < self < 3]"""
    return hardtanh_backward(a, over(a, grad_output, 6), self, -3, 3)


@rule("aten.hardswish.default")
def hardswish(a: Algebra[V], self: V) -> V:
    """out = self min(max(self + 3, 0), 6) / 6"""
    return times(a, self, hardsigmoid(a, self))


@rule("aten.hardswish_backward.default")
def hardswish_backward(a: Algebra[V], grad_output: V, self: V) -> V:
    """out = 0 if self <= -3, grad_output (self / 3 + 1/2) if self < 3, else grad_output"""
    middle = times(a, grad_output, plus(a, over(a, self, 3), Fraction(1, 2)))
    upper = chosen(a, compared(a, "lt", self, 3), middle, grad_output)
    return chosen(a, compared(a, "le", self, -3), 0, upper)


@rule("aten.glu.default")
def glu(a: Algebra[V], self: V, dim: int = -1) -> V:
    """out = first half of dim times sigmoid of the second half"""
    first, second = _halves(a, self, dim)
    return times(a, first, sigmoid_of(a, second))


@rule("aten.glu_backward.default")
def glu_backward(a: Algebra[V], grad_output: V, self: V, dim: int) -> V:
    """out = concat(grad_output s, grad_output first s (1 - s)), s = sigmoid(second)"""
    first, second = _halves(a, self, dim)
    s = sigmoid_of(a, second)
    outer = times(a, grad_output, s)
    return a.concat([outer, product(a, outer, first, minus(a, 1, s))], dim % len(self.shape))


def _halves(a: Algebra[V], v: V, dim: int) -> tuple[V, V]:
    dim %= len(v.shape)
    half = v.shape[dim] // 2
    return a.slice(v, dim, 0, half), a.slice(v, dim, half, 2 * half)
