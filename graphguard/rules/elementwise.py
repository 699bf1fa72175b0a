"""Elementwise arithmetic, powers and activation functions.

A value in brackets is 1 where the comparison holds, else 0.  Plain numbers stand where the schema takes a scalar.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Final

from graphguard.relations.algebra import Algebra, Unsupported, V
from graphguard.rules.arithmetic import (
    NUMBER,
    Number,
    aligned,
    as_float,
    chosen,
    compared,
    function,
    kind_of_operand,
    larger,
    minus,
    negative,
    over,
    plus,
    product,
    reciprocal,
    root,
    scaled,
    smaller,
    square,
    times,
)
from graphguard.rules.registry import Call, rule
from graphguard.rules.scalars import exact

LARGEST_WHOLE_POWER: Final = 64


# -- sums and products
@rule("aten.add.Tensor", "aten.add.Scalar", casts=True)
def add(a: Algebra[V], self: V, other: Any, alpha: Number = 1) -> V:
    """out = self + alpha other"""
    return plus(a, self, weighted(a, other, alpha))


def weighted(a: Algebra[V], other: Any, alpha: Number) -> Any:
    """alpha other, for a value or a number."""
    if isinstance(other, NUMBER):
        return other * alpha if alpha != 1 else other
    return other if alpha == 1 else times(a, other, alpha)


@rule("aten.sub.Tensor", "aten.sub.Scalar", "aten.subtract.Tensor", casts=True)
def sub(a: Algebra[V], self: V, other: Any, alpha: Number = 1) -> V:
    """out = self - alpha other"""
    return minus(a, self, weighted(a, other, alpha))


@rule("aten.rsub.Tensor", "aten.rsub.Scalar", casts=True)
def rsub(a: Algebra[V], self: V, other: Any, alpha: Number = 1) -> V:
    """out = other - alpha self"""
    return plus(a, other, negative(a, weighted(a, self, alpha)))


@rule("aten.mul.Tensor", "aten.mul.Scalar", "aten.multiply.Tensor", casts=True)
def mul(a: Algebra[V], self: V, other: Any) -> V:
    """out = self other"""
    return times(a, self, other)


@rule("aten.div.Tensor", "aten.div.Scalar", "aten.true_divide.Tensor", "aten.divide.Tensor", casts=True)
def div(a: Algebra[V], self: V, other: Any) -> V:
    """out = self / other"""
    return over(a, self, other)


@rule("aten.div.Tensor_mode", "aten.div.Scalar_mode", casts=True)
def div_mode(a: Algebra[V], self: V, other: Any, *, rounding_mode: str | None) -> V:
    """out = self / other, rounded down (floor), towards zero (trunc) or not at all"""
    if rounding_mode is None:
        return over(a, self, other)
    if rounding_mode == "floor":
        return floor_divide(a, self, other)
    if self.kind == "int" and kind_of_operand(other) == "int":
        raise Unsupported("division of integers towards zero")
    return truncated(a, over(a, self, other))


@rule("aten.floor_divide.default", "aten.floor_divide.Scalar", casts=True)
def floor_divide(a: Algebra[V], self: V, other: Any) -> V:
    """out = floor(self / other)"""
    if self.kind == "int" and kind_of_operand(other) == "int":
        return a.floor_divide(self, whole_divisor(a, other))
    return function(a, "floor", over(a, self, other))


@rule("aten.remainder.Scalar", "aten.remainder.Tensor", casts=True)
def remainder(a: Algebra[V], self: V, other: Any) -> V:
    """out = self - other floor(self / other)"""
    if self.kind == "int" and kind_of_operand(other) == "int":
        return a.remainder(self, whole_divisor(a, other))
    return minus(a, self, times(a, other, function(a, "floor", over(a, self, other))))


@rule("aten.fmod.Scalar", "aten.fmod.Tensor", casts=True)
def fmod(a: Algebra[V], self: V, other: Any) -> V:
    """out = self - other trunc(self / other)"""
    if self.kind == "int":
        raise Unsupported("fmod of integers")
    return minus(a, self, times(a, other, truncated(a, over(a, self, other))))


def whole_divisor(a: Algebra[V], other: Any) -> int:
    """A divisor that is one known positive integer; raises ``Unsupported`` otherwise."""
    if not isinstance(other, NUMBER):
        known = a.known(other)
        if known is None or known.size == 0 or (known != known.reshape(-1)[0]).any():
            raise Unsupported("division of integers by a tensor")
        other = int(known.reshape(-1)[0])
    if other <= 0 or other != int(other):
        raise Unsupported(f"division of integers by {other}")
    return int(other)


def truncated(a: Algebra[V], v: V) -> V:
    """Rounded towards zero: sign(v) floor(abs(v))."""
    return times(a, function(a, "sign", v), function(a, "floor", function(a, "abs", v)))


@rule("aten.neg.default", "aten.negative.default")
def neg(a: Algebra[V], self: V) -> V:
    """out = -self"""
    return negative(a, self)


@rule("aten.addcmul.default", casts=True)
def addcmul(a: Algebra[V], self: V, tensor1: V, tensor2: V, *, value: Number = 1) -> V:
    """out = self + value tensor1 tensor2"""
    return plus(a, self, times(a, times(a, tensor1, tensor2), value))


@rule("aten.addcdiv.default", casts=True)
def addcdiv(a: Algebra[V], self: V, tensor1: V, tensor2: V, *, value: Number = 1) -> V:
    """out = self + value tensor1 / tensor2"""
    return plus(a, self, times(a, over(a, tensor1, tensor2), value))


@rule("aten.lerp.Scalar", "aten.lerp.Tensor", casts=True)
def lerp(a: Algebra[V], self: V, end: V, weight: Any) -> V:
    """out = (1 - weight) self + weight end"""
    left = 1 - exact(weight) if isinstance(weight, NUMBER) else minus(a, 1, weight)
    return plus(a, times(a, self, left), times(a, end, weight))


# -- powers, exponentials, logarithms
@rule("aten.pow.Tensor_Scalar")
def pow_scalar(a: Algebra[V], self: V, exponent: Number) -> V:
    """out = self ** exponent"""
    power = exact(exponent)
    if power == 0:
        return a.full(self.shape, Fraction(1), self.kind)
    if power == 1:
        return self
    if not isinstance(power, Fraction):
        raise Unsupported(f"a power of {power}")
    if power.denominator == 1 and 0 < power <= LARGEST_WHOLE_POWER:
        return whole_power(a, self, int(power))
    return a.power(as_float(a, self), power)


def whole_power(a: Algebra[V], v: V, exponent: int) -> V:
    """v ** exponent for exponent >= 1."""
    if v.kind == "float":
        return a.power(v, Fraction(exponent))
    result = v
    for _ in range(exponent - 1):
        result = times(a, result, v)
    return result


@rule("aten.pow.Scalar")
def pow_base(a: Algebra[V], self: Any, exponent: Any) -> V:
    """out = self ** exponent = exp(log(self) exponent), for self > 0"""
    if isinstance(exponent, NUMBER):  # the in-place form, whose base is the tensor
        whole: V = pow_scalar(a, self, exponent)
        return whole
    if self == 1:
        return a.full(exponent.shape, Fraction(1), kind_of_operand(exponent))
    if self <= 0:
        raise Unsupported(f"powers of {self}")
    return a.exp(scaled(a, as_float(a, exponent), exact(math.log(self))))


@rule("aten.pow.Tensor_Tensor")
def pow_tensor(a: Algebra[V], self: V, exponent: V) -> V:
    """out = self ** exponent"""
    known = a.known(exponent)
    if known is not None and known.size == 1:
        power = known.reshape(-1)[0]
        wide = aligned(a, self, exponent)[0]
        return pow_scalar(a, wide, int(power) if exponent.kind == "int" else float(power))
    return a.apply("pow", (), aligned(a, self, exponent, kind="float"), "float")


@rule("aten.square.default")
def square_rule(a: Algebra[V], self: V) -> V:
    """out = self self"""
    return square(a, self)


@rule("aten.sqrt.default")
def sqrt(a: Algebra[V], self: V) -> V:
    """out = self ** (1/2)"""
    return root(a, self)


@rule("aten.rsqrt.default")
def rsqrt(a: Algebra[V], self: V) -> V:
    """out = self ** (-1/2)"""
    return a.power(as_float(a, self), Fraction(-1, 2))


@rule("aten.reciprocal.default")
def reciprocal_rule(a: Algebra[V], self: V) -> V:
    """out = 1 / self"""
    return reciprocal(a, self)


@rule("aten.exp.default")
def exp(a: Algebra[V], self: V) -> V:
    """out = e ** self"""
    return a.exp(as_float(a, self))


@rule("aten.exp2.default")
def exp2(a: Algebra[V], self: V) -> V:
    """out = 2 ** self"""
    return a.exp(scaled(a, as_float(a, self), exact(math.log(2))))


@rule("aten.expm1.default")
def expm1(a: Algebra[V], self: V) -> V:
    """out = e ** self - 1"""
    return plus(a, a.exp(as_float(a, self)), -1)


@rule("aten.log.default")
def log(a: Algebra[V], self: V) -> V:
    """The natural logarithm"""
    return a.log(as_float(a, self))


@rule("aten.log2.default")
def log2(a: Algebra[V], self: V) -> V:
    """out = log(self) / log(2)"""
    return scaled(a, a.log(as_float(a, self)), exact(1 / math.log(2)))


@rule("aten.log10.default")
def log10(a: Algebra[V], self: V) -> V:
    """out = log(self) / log(10)"""
    return scaled(a, a.log(as_float(a, self)), exact(1 / math.log(10)))


@rule("aten.log1p.default")
def log1p(a: Algebra[V], self: V) -> V:
    """out = log(1 + self)"""
    return a.log(plus(a, as_float(a, self), 1))


@rule("aten.xlogy.Tensor", "aten.xlogy.Scalar_Other", "aten.xlogy.Scalar_Self")
def xlogy(a: Algebra[V], self: Any, other: Any) -> V:
    """out = 0 where self = 0, else self log(other)"""
    x, y = aligned(a, self, other, kind="float")
    zero = compared(a, "eq", x, 0)
    return chosen(a, zero, 0.0, times(a, x, a.log(chosen(a, zero, 1.0, y))))


@rule("aten.logaddexp.default")
def logaddexp(a: Algebra[V], self: V, other: V) -> V:
    """out = log(exp(self) + exp(other))"""
    return a.log(plus(a, a.exp(self), a.exp(other)))


# -- functions known by name
def _named(op: str, name: str) -> None:
    def named(a: Algebra[V], self: V) -> V:
        return function(a, name, self)

    named.__doc__ = f"out = {name}(self)"
    named.__name__ = name
    rule(op)(named)


for _name in (
    "sigmoid",
    "tanh",
    "erf",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "asinh",
    "acosh",
    "atanh",
    "lgamma",
):
    _named(f"aten.{_name}.default", _name)
_named("hlo.logistic", "sigmoid")


@rule("aten.erfc.default")
def erfc(a: Algebra[V], self: V) -> V:
    """out = 1 - erf(self)"""
    return minus(a, 1, function(a, "erf", self))


@rule("aten.atan2.default")
def atan2(a: Algebra[V], self: V, other: V) -> V:
    """The angle of (other, self)"""
    return a.apply("atan2", (), aligned(a, self, other, kind="float"), "float")


@rule("aten.abs.default")
def abs_rule(a: Algebra[V], self: V) -> V:
    """out = abs(self)"""
    return a.apply("abs", (), [self], self.kind)


@rule("aten.sign.default", "aten.sgn.default")
def sign(a: Algebra[V], self: V) -> V:
    """out = [self > 0] - [self < 0]"""
    return a.apply("sign", (), [self], self.kind)


def _rounding(a: Algebra[V], name: str, v: V) -> V:
    return v if v.kind == "int" else function(a, name, v)


@rule("aten.floor.default")
def floor(a: Algebra[V], self: V) -> V:
    """The largest integer not above self"""
    return _rounding(a, "floor", self)


@rule("aten.ceil.default")
def ceil(a: Algebra[V], self: V) -> V:
    """out = -floor(-self)"""
    return self if self.kind == "int" else negative(a, function(a, "floor", negative(a, self)))


@rule("aten.round.default")
def round_rule(a: Algebra[V], self: V) -> V:
    """The nearest integer, the even one of two"""
    return _rounding(a, "round", self)


@rule("aten.trunc.default", "aten.fix.default")
def trunc(a: Algebra[V], self: V) -> V:
    """out = sign(self) floor(abs(self))"""
    return self if self.kind == "int" else truncated(a, self)


@rule("aten.frac.default")
def frac(a: Algebra[V], self: V) -> V:
    """out = self - trunc(self)"""
    return minus(a, self, truncated(a, self))


# -- order
@rule("aten.maximum.default", "aten.max.other", "aten.fmax.default", casts=True)
def maximum(a: Algebra[V], self: V, other: V) -> V:
    """The larger one"""
    return larger(a, self, other)


@rule("aten.minimum.default", "aten.min.other", "aten.fmin.default", casts=True)
def minimum(a: Algebra[V], self: V, other: V) -> V:
    """The smaller one: -max(-self, -other)"""
    return smaller(a, self, other)


@rule("aten.clamp.default", "aten.clamp.Tensor", "aten.clip.default", "aten.clip.Tensor")
def clamp(a: Algebra[V], self: V, min: Any = None, max: Any = None) -> V:
    """out = min(max(self, min), max)"""
    result = self if min is None else larger(a, self, min)
    return result if max is None else smaller(a, result, max)


@rule("aten.clamp_min.default", "aten.clamp_min.Tensor")
def clamp_min(a: Algebra[V], self: V, min: Any) -> V:
    """out = max(self, min)"""
    return larger(a, self, min)


@rule("aten.clamp_max.default", "aten.clamp_max.Tensor")
def clamp_max(a: Algebra[V], self: V, max: Any) -> V:
    """out = min(self, max)"""
    return smaller(a, self, max)


@rule("aten.hardtanh.default")
def hardtanh(a: Algebra[V], self: V, min_val: Number = -1, max_val: Number = 1) -> V:
    """out = min(max(self, min_val), max_val)"""
    return clamp(a, self, min_val, max_val)


@rule("aten.hardtanh_backward.default")
def hardtanh_backward(a: Algebra[V], grad_output: V, self: V, min_val: Number, max_val: Number) -> V:
    """out = grad_output [min_val < self < max_val]"""
    inside = a.logical_and(compared(a, "gt", self, min_val), compared(a, "lt", self, max_val))
    return chosen(a, inside, grad_output, 0)


# -- activations
@rule("aten.relu.default")
def relu(a: Algebra[V], self: V) -> V:
    """out = max(self, 0)"""
    return larger(a, self, 0)


@rule("aten._add_relu.Tensor", casts=True)
def add_relu(a: Algebra[V], self: V, other: Any, alpha: Number = 1) -> V:
    """out = max(self + alpha other, 0)"""
    return larger(a, add(a, self, other, alpha), 0)


@rule("aten.relu6.default")
def relu6(a: Algebra[V], self: V) -> V:
    """out = min(max(self, 0), 6)"""
    return clamp(a, self, 0, 6)


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


@rule("aten.softplus.default")
def softplus(a: Algebra[V], self: V, beta: Number = 1, threshold: Number = 20) -> V:
    """out = log(1 + exp(beta self)) / beta = -log(sigmoid(-beta self)) / beta; the threshold only saves work"""
    return over(a, negative(a, a.log(sigmoid_of(a, times(a, negative(a, self), beta)))), beta)


@rule("aten.softplus_backward.default")
def softplus_backward(a: Algebra[V], grad_output: V, self: V, beta: Number, threshold: Number) -> V:
    """out = grad_output sigmoid(beta self)"""
    return times(a, grad_output, sigmoid_of(a, times(a, self, beta)))


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
    return over(a, clamp(a, plus(a, self, 3), 0, 6), 6)


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
