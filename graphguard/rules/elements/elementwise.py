"""Elementwise arithmetic, powers and activation functions.

A value in brackets is 1 where the comparison holds, else 0.  Plain numbers stand where the schema takes a scalar.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Final

from graphguard.relations.algebra import Algebra, Unsupported, V
from graphguard.rules.basis.arithmetic import (
    Number,
    aligned,
    as_float,
    chosen,
    compared,
    function,
    is_number,
    kind_of_operand,
    larger,
    minus,
    negative,
    over,
    plus,
    reciprocal,
    root,
    scaled,
    smaller,
    square,
    times,
)
from graphguard.rules.basis.casting import distinct
from graphguard.rules.basis.registry import Call, rule
from graphguard.rules.basis.scalars import exact
from graphguard.rules.basis.type_bounds import is_end, type_of

LARGEST_WHOLE_POWER: Final = 64


# -- sums and products
@rule("aten.add.Tensor", "aten.add.Scalar", casts=True)
def add(a: Algebra[V], self: V, other: Any, alpha: Number = 1) -> V:
    """out = self + alpha other"""
    return plus(a, self, weighted(a, other, alpha))


def weighted(a: Algebra[V], other: Any, alpha: Number) -> Any:
    """alpha other, for a value or a number."""
    if is_number(other):
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
        return quotient(a, self, whole_divisor(a, other))
    return truncated(a, over(a, self, other))


@rule("aten.floor_divide.default", "aten.floor_divide.Scalar", casts=True)
def floor_divide(a: Algebra[V], self: V, other: Any) -> V:
    """out = floor(self / other); of integers and a tensor that is not one known number closed, elementwise"""
    if self.kind == "int" and kind_of_operand(other) == "int":
        divisor = known_divisor(a, other)
        if divisor is None:
            return a.apply("floor_divide", (), aligned(a, self, other), "int")
        return a.floor_divide(self, divisor)
    return function(a, "floor", over(a, self, other))


@rule("aten.remainder.Scalar", "aten.remainder.Tensor", casts=True)
def remainder(a: Algebra[V], self: V, other: Any) -> V:
    """out = self - other floor(self / other); of integers and a tensor that is not one known number closed, elementwise"""
    if self.kind == "int" and kind_of_operand(other) == "int":
        divisor = known_divisor(a, other)
        if divisor is None:
            return a.apply("remainder", (), aligned(a, self, other), "int")
        return a.remainder(self, divisor)
    return minus(a, self, times(a, other, function(a, "floor", over(a, self, other))))


@rule("aten.fmod.Scalar", "aten.fmod.Tensor", casts=True)
def fmod(a: Algebra[V], self: V, other: Any) -> V:
    """out = self - other trunc(self / other)"""
    if self.kind == "int" and kind_of_operand(other) == "int":
        divisor = whole_divisor(a, other)
        return minus(a, self, times(a, quotient(a, self, divisor), divisor))
    return minus(a, self, times(a, other, truncated(a, over(a, self, other))))


def known_divisor(a: Algebra[V], other: Any) -> int | None:
    """A divisor that is one known positive integer; None otherwise."""
    try:
        return whole_divisor(a, other)
    except Unsupported:
        return None


def whole_divisor(a: Algebra[V], other: Any) -> int:
    """A divisor that is one known positive integer; raises ``Unsupported`` otherwise."""
    if not is_number(other):
        known = distinct(a, other)
        if known is None or known.size == 0 or (known != known.reshape(-1)[0]).any():
            raise Unsupported("division of integers by a tensor")
        other = int(known.reshape(-1)[0])
    if other <= 0 or other != int(other):
        raise Unsupported(f"division of integers by {other}")
    return int(other)


def quotient(a: Algebra[V], v: V, divisor: int) -> V:
    """The quotient of integers, rounded towards zero."""
    below = negative(a, a.floor_divide(negative(a, v), divisor))
    return chosen(a, compared(a, "lt", v, 0), below, a.floor_divide(v, divisor))


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
    left = 1 - exact(weight) if is_number(weight) else minus(a, 1, weight)
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
    if is_number(exponent):  # the in-place form, whose base is the tensor
        whole: V = pow_scalar(a, self, exponent)
        return whole
    if self == 1:
        return a.full(exponent.shape, Fraction(1), kind_of_operand(exponent))
    if self <= 0:
        raise Unsupported(f"powers of {self}")
    number, power = exact(self), as_float(a, exponent)
    # of whole exponents the number itself counts: 0.9 ** (i + 4) is 0.9 ** i times 0.9 ** 4
    most = a.most_counted(exponent, 0)
    if isinstance(number, Fraction) and most is not None and (exponent.kind == "int" or most < math.inf):
        return a.exp(times(a, a.log(a.full(power.shape, number, "float")), power))
    return a.exp(scaled(a, power, exact(math.log(self))))


@rule("aten.pow.Tensor_Tensor")
def pow_tensor(a: Algebra[V], self: V, exponent: V) -> V:
    """out = self ** exponent"""
    known = distinct(a, exponent)
    if known is not None and known.size == 1:
        power = known.reshape(-1)[0]
        wide = aligned(a, self, exponent)[0]
        return pow_scalar(a, wide, int(power) if exponent.kind == "int" else float(power))
    base, power = aligned(a, self, exponent, kind="float")
    if a.positive(self):
        return a.exp(times(a, a.log(base), power))
    return a.apply("pow", (), [base, power], "float")


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
    """out = 0 where self = 0, else self log(other): so self log(other), with 1 for an other of which there is no logarithm where self = 0"""
    x, y = aligned(a, self, other, kind="float")
    unread = a.logical_and(compared(a, "eq", x, 0), compared(a, "le", y, 0))
    return times(a, x, a.log(chosen(a, unread, 1.0, y)))


@rule("aten.special_xlog1py.default", "aten.special_xlog1py.other_scalar", "aten.special_xlog1py.self_scalar")
def xlog1py(a: Algebra[V], self: Any, other: Any) -> V:
    """out = 0 where self = 0, else self log(1 + other)"""
    shifted = other + 1 if is_number(other) else plus(a, as_float(a, other), 1)
    result: V = xlogy(a, self, shifted)
    return result


@rule("aten.logit.default")
def logit(a: Algebra[V], self: V, eps: float | None = None) -> V:
    """out = log(x / (1 - x)), x = self, or self within [eps, 1 - eps]"""
    x: V = as_float(a, self) if eps is None else clamped(a, as_float(a, self), eps, 1 - exact(eps))
    return minus(a, a.log(x), a.log(minus(a, 1, x)))


@rule("aten.logit_backward.default")
def logit_backward(a: Algebra[V], grad_output: V, self: V, eps: float | None = None) -> V:
    """out = grad_output / (self (1 - self)), 0 outside [eps, 1 - eps]; without eps not a number outside [0, 1], as the logarithm is there"""
    slope = over(a, grad_output, times(a, self, minus(a, 1, self)))
    if eps is None:
        return slope
    inside = a.logical_and(compared(a, "ge", self, eps), compared(a, "le", self, 1 - exact(eps)))
    return chosen(a, inside, slope, 0.0)


@rule("aten.hypot.default")
def hypot(a: Algebra[V], self: V, other: V) -> V:
    """out = sqrt(self self + other other)"""
    return root(a, plus(a, square(a, self), square(a, other)))


@rule("aten.logaddexp.default")
def logaddexp(a: Algebra[V], self: V, other: V) -> V:
    """out = log(exp(self) + exp(other))"""
    return a.log(plus(a, a.exp(self), a.exp(other)))


@rule("aten.logaddexp2.default")
def logaddexp2(a: Algebra[V], self: V, other: V) -> V:
    """out = log2(2 ** self + 2 ** other)"""
    powers = [a.exp(scaled(a, v, exact(math.log(2)))) for v in (self, other)]
    return scaled(a, a.log(plus(a, *powers)), exact(1 / math.log(2)))


@rule("aten.deg2rad.default")
def deg2rad(a: Algebra[V], self: V) -> V:
    """out = self pi / 180"""
    return scaled(a, as_float(a, self), exact(math.pi / 180))


@rule("aten.rad2deg.default")
def rad2deg(a: Algebra[V], self: V) -> V:
    """out = self 180 / pi"""
    return scaled(a, as_float(a, self), exact(180 / math.pi))


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
def clamp(a: Algebra[V], self: V, min: Any = None, max: Any = None, *, call: Call) -> V:
    """out = min(max(self, min), max); the ends of the operand's type bound no number that is not infinite"""
    dtype = type_of(call, "self")
    low, high = is_end(a, self, min, dtype, -1), is_end(a, self, max, dtype, 1)
    return clamped(a, self, None if low else min, None if high else max)


def clamped(a: Algebra[V], self: V, low: Any, high: Any) -> V:
    """min(max(self, low), high), where these are given."""
    result = self if low is None else larger(a, self, low)
    return result if high is None else smaller(a, result, high)


@rule("aten.clamp_min.default", "aten.clamp_min.Tensor")
def clamp_min(a: Algebra[V], self: V, min: Any) -> V:
    """out = max(self, min)"""
    return larger(a, self, min)


@rule("aten.clamp_max.default", "aten.clamp_max.Tensor")
def clamp_max(a: Algebra[V], self: V, max: Any) -> V:
    """out = min(self, max)"""
    return smaller(a, self, max)


@rule("aten.bitwise_left_shift.Tensor", "aten.__lshift__.Tensor")
def left_shift_each(a: Algebra[V], self: V, other: V) -> V:
    """out = self 2^other: closed, elementwise"""
    return a.apply("left_shift", (), aligned(a, self, other, kind="int"), "int")


@rule("aten.__lshift__.Scalar", "aten.bitwise_left_shift.Tensor_Scalar")
def left_shift(a: Algebra[V], self: V, other: int) -> V:
    """out = self 2^other"""
    return a.scale(self, exact(2**other))
