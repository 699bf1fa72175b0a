"""Softmax in all its forms.  It is computed without subtracting the maximum, which cancels over the reals."""

from __future__ import annotations

from graphguard.ir import DType
from graphguard.relations.algebra import Algebra, V
from graphguard.rules.basis.arithmetic import as_float, dim_of, minus, over, times
from graphguard.rules.basis.casting import cast
from graphguard.rules.basis.registry import Call, rule
from graphguard.rules.lines.reductions import total


def softmax_over(a: Algebra[V], v: V, dim: int) -> V:
    """exp(v) / sum exp(v)."""
    if 0 in v.shape:
        return v
    if not v.shape:
        return over(a, v, v)
    exponential = a.exp(v)
    return over(a, exponential, total(a, exponential, [dim_of(dim, len(v.shape))], True))


def log_softmax_over(a: Algebra[V], v: V, dim: int) -> V:
    """v - log(sum exp(v))."""
    if 0 in v.shape:
        return v
    if not v.shape:
        return minus(a, v, v)
    return minus(a, v, a.log(total(a, a.exp(v), [dim_of(dim, len(v.shape))], True)))


@rule("aten._softmax.default")
def softmax_half(a: Algebra[V], self: V, dim: int, half_to_float: bool = False) -> V:
    """out = exp(self) / sum exp(self) over dim"""
    return softmax_over(a, as_float(a, self), dim)


@rule("aten.softmax.int", "aten.special_softmax.default")
def softmax(a: Algebra[V], self: V, dim: int, dtype: DType | None = None, *, call: Call) -> V:
    """out = exp(self) / sum exp(self) over dim"""
    return softmax_over(a, _in(a, self, dtype, call), dim)


@rule("aten._safe_softmax.default")
def safe_softmax(a: Algebra[V], self: V, dim: int, dtype: DType | None = None, *, call: Call) -> V:
    """out = exp(self) / sum exp(self) over dim, where not every element of a line is -inf"""
    return softmax_over(a, _in(a, self, dtype, call), dim)


@rule("aten._log_softmax.default")
def log_softmax_half(a: Algebra[V], self: V, dim: int, half_to_float: bool = False) -> V:
    """out = self - log(sum exp(self)) over dim"""
    return log_softmax_over(a, as_float(a, self), dim)


@rule("aten.log_softmax.int", "aten.special_log_softmax.default")
def log_softmax(a: Algebra[V], self: V, dim: int, dtype: DType | None = None, *, call: Call) -> V:
    """out = self - log(sum exp(self)) over dim"""
    return log_softmax_over(a, _in(a, self, dtype, call), dim)


def _in(a: Algebra[V], v: V, dtype: DType | None, call: Call) -> V:
    return as_float(a, v) if dtype is None else cast(a, v, call.dtype("self"), dtype.name)


@rule("aten._softmax_backward_data.default")
def softmax_backward(a: Algebra[V], grad_output: V, output: V, dim: int, input_dtype: DType) -> V:
    """out = output (grad_output - sum grad_output output) over dim"""
    return softmax_gradient(a, grad_output, output, dim)


def softmax_gradient(a: Algebra[V], grad_output: V, output: V, dim: int) -> V:
    """output (grad_output - sum grad_output output)."""
    if not output.shape:
        return minus(a, output, output)
    inner = total(a, times(a, grad_output, output), [dim_of(dim, len(output.shape))], True)
    return times(a, output, minus(a, grad_output, inner))


@rule("aten._log_softmax_backward_data.default")
def log_softmax_backward(a: Algebra[V], grad_output: V, output: V, dim: int, input_dtype: DType) -> V:
    """out = grad_output - exp(output) sum grad_output over dim"""
    if not output.shape:
        return minus(a, output, output)
    inner = total(a, grad_output, [dim_of(dim, len(output.shape))], True)
    return minus(a, grad_output, times(a, a.exp(output), inner))
