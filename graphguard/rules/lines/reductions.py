"""Sums, means, extremes and norms over dims.  ``dim`` None or empty means all dims; ``keepdim`` keeps them with extent 1."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TypeAlias

from graphguard.ir import DType
from graphguard.relations.algebra import Algebra, Kind, Unsupported, V
from graphguard.rules.basis.arithmetic import (
    LETTERS,
    Number,
    as_float,
    compared,
    dim_of,
    dims_of,
    function,
    kept,
    minus,
    negative,
    over,
    root,
    scaled,
    square,
    times,
)
from graphguard.rules.basis.casting import cast, convert
from graphguard.rules.basis.merged_places import note_largest, note_place
from graphguard.rules.basis.registry import Call, rule
from graphguard.rules.elements.creation import unknown

Dims: TypeAlias = "int | Sequence[int] | None"


def total(a: Algebra[V], v: V, dims: Sequence[int], keepdim: bool) -> V:
    """The sum over dims; a bool counts as 0 or 1."""
    v = convert(a, v, "int") if v.kind == "bool" else v
    result = a.sum(v, dims) if dims else v
    return a.reshape(result, kept(v.shape, dims, True)) if keepdim else result


def extent(shape: tuple[int, ...], dims: Sequence[int]) -> int:
    """How many elements a reduction over dims takes together."""
    return math.prod(shape[dim] for dim in dims)


def _in(a: Algebra[V], v: V, dtype: DType | None, call: Call) -> V:
    """The operand in the type in which the reduction is computed."""
    source = call.dtype("self")
    if dtype is None or dtype.name == source:
        return v
    return cast(a, v, source, dtype.name)


@rule("aten.sum.dim_IntList")
def sum_dims(a: Algebra[V], self: V, dim: Dims, keepdim: bool = False, *, dtype: DType | None = None, call: Call) -> V:
    """out = the sum of self over dim; computed in dtype, if given"""
    return total(a, _in(a, self, dtype, call), dims_of(dim, len(self.shape)), keepdim)


@rule("aten.sum.default")
def sum_all(a: Algebra[V], self: V, *, dtype: DType | None = None, call: Call) -> V:
    """out = the sum of all elements"""
    return sum_dims(a, self, None, dtype=dtype, call=call)


@rule("aten.nansum.default")
def nansum(
    a: Algebra[V], self: V, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None, call: Call
) -> V:
    """out = the sum of self over dim; a real number is never not-a-number"""
    return sum_dims(a, self, dim, keepdim, dtype=dtype, call=call)


@rule("aten.mean.dim")
def mean_dims(a: Algebra[V], self: V, dim: Dims, keepdim: bool = False, *, dtype: DType | None = None, call: Call) -> V:
    """out = the sum of self over dim / how many they are"""
    return mean(a, as_float(a, _in(a, self, dtype, call)), dims_of(dim, len(self.shape)), keepdim)


def mean(a: Algebra[V], v: V, dims: Sequence[int], keepdim: bool) -> V:
    """The mean over dims."""
    count = extent(v.shape, dims)
    if not count:
        raise Unsupported("the mean of nothing")
    return scaled(a, total(a, v, dims, keepdim), Fraction(1, count))


@rule("aten.mean.default")
def mean_all(a: Algebra[V], self: V, *, dtype: DType | None = None, call: Call) -> V:
    """out = the sum of all elements / how many they are"""
    return mean_dims(a, self, None, dtype=dtype, call=call)


def highest(a: Algebra[V], v: V, dims: Sequence[int], keepdim: bool) -> V:
    """The largest over dims."""
    if v.kind == "bool":
        return compared(a, "gt", total(a, v, dims, keepdim), 0)
    result = a.max_over(v, dims) if dims else v
    return a.reshape(result, kept(v.shape, dims, True)) if keepdim else result


def lowest(a: Algebra[V], v: V, dims: Sequence[int], keepdim: bool) -> V:
    """The smallest over dims."""
    if v.kind == "bool":
        return a.logical_not(highest(a, a.logical_not(v), dims, keepdim))
    return negative(a, highest(a, negative(a, v), dims, keepdim))


@rule("aten.amax.default")
def amax(a: Algebra[V], self: V, dim: Dims = (), keepdim: bool = False) -> V:
    """out = the largest element over dim"""
    return highest(a, self, dims_of(dim, len(self.shape)), keepdim)


@rule("aten.amin.default")
def amin(a: Algebra[V], self: V, dim: Dims = (), keepdim: bool = False) -> V:
    """out = -amax(-self)"""
    return lowest(a, self, dims_of(dim, len(self.shape)), keepdim)


@rule("aten.aminmax.default")
def aminmax(a: Algebra[V], self: V, *, dim: int | None = None, keepdim: bool = False) -> tuple[V, V]:
    """(amin, amax)"""
    dims = dims_of(dim, len(self.shape))
    return lowest(a, self, dims, keepdim), highest(a, self, dims, keepdim)


@rule("aten.max.default")
def max_all(a: Algebra[V], self: V) -> V:
    """out = the largest of all elements"""
    return highest(a, self, range(len(self.shape)), False)


@rule("aten.min.default")
def min_all(a: Algebra[V], self: V) -> V:
    """out = the smallest of all elements"""
    return lowest(a, self, range(len(self.shape)), False)


def along(
    a: Algebra[V], name: str, v: V, dim: int, keepdim: bool, kind: Kind, attributes: tuple[object, ...] = ()
) -> V:
    """A closed function of every line along a dim to one element, batched over the other dims."""
    if not v.shape:
        v, dim = a.reshape(v, (1,)), 0
        return a.opaque(name, attributes, [(v, "A")], "", (), kind)
    letters = LETTERS[: len(v.shape)]
    line = letters[:dim] + "A" + letters[dim + 1 :]
    result = a.opaque(name, attributes, [(v, line)], line.replace("A", ""), kept(v.shape, [dim], False), kind)
    return a.reshape(result, kept(v.shape, [dim], True)) if keepdim else result


@rule("aten.max.dim")
def max_dim(a: Algebra[V], self: V, dim: int, keepdim: bool = False, *, call: Call) -> tuple[V, V]:
    """values = the largest element over dim; indices = where it stands, the first of several"""
    dim = dim_of(dim, len(self.shape))
    dims = [dim] if self.shape else []
    value, place = highest(a, self, dims, keepdim), _where_it_stands(a, self, dim, keepdim, call)
    if self.shape:
        note_largest(a, self, dim, value, place)
    return value, place


@rule("aten.min.dim")
def min_dim(a: Algebra[V], self: V, dim: int, keepdim: bool = False, *, call: Call) -> tuple[V, V]:
    """values = the smallest element over dim; indices = where it stands, the first of several"""
    dim = dim_of(dim, len(self.shape))
    dims = [dim] if self.shape else []
    value, place = lowest(a, self, dims, keepdim), _where_it_stands(a, negative(a, self), dim, keepdim, call)
    if self.shape:
        note_largest(a, negative(a, self), dim, negative(a, value), place)
    return value, place


def _where_it_stands(a: Algebra[V], v: V, dim: int, keepdim: bool, call: Call) -> V:
    """The position of the largest; where the algebra cannot follow, an unknown, so that the largest itself is not lost."""
    try:
        return _position(a, v, dim, keepdim)
    except Unsupported as reason:
        call.remarks.append(str(reason))
        return unknown(a, call.shape(1), "int")


@rule("aten.argmax.default")
def argmax(a: Algebra[V], self: V, dim: int | None = None, keepdim: bool = False) -> V:
    """Where the largest element stands, the first of several"""
    return _position(a, self, dim, keepdim)


@rule("aten.argmin.default")
def argmin(a: Algebra[V], self: V, dim: int | None = None, keepdim: bool = False) -> V:
    """Where the smallest element stands, the first of several"""
    return _position(a, negative(a, self), dim, keepdim)


def _position(a: Algebra[V], v: V, dim: int | None, keepdim: bool) -> V:
    shape = v.shape if dim is None else kept(v.shape, [dim_of(dim, len(v.shape))], True)
    if dim is None or not v.shape:
        v, dim, shape = a.reshape(v, (math.prod(v.shape),)), 0, (1,) * len(v.shape)
    dim = dim_of(dim, len(v.shape))
    place: V = a.place_of_largest(v, dim)
    note_place(a, place)
    return a.reshape(place, shape if keepdim else kept(v.shape, [dim], False))


@rule("aten.prod.dim_int")
def prod_dim(a: Algebra[V], self: V, dim: int, keepdim: bool = False, *, dtype: DType | None = None, call: Call) -> V:
    """The product over dim: multiplied out up to 64 factors, else closed"""
    return _prod(a, _in(a, self, dtype, call), dim_of(dim, len(self.shape)), keepdim)


@rule("aten.prod.default")
def prod_all(a: Algebra[V], self: V, *, dtype: DType | None = None, call: Call) -> V:
    """The product of all elements: multiplied out up to 64 factors, else closed"""
    flat = a.reshape(_in(a, self, dtype, call), (math.prod(self.shape),))
    return _prod(a, flat, 0, False)


def _prod(a: Algebra[V], v: V, dim: int, keepdim: bool) -> V:
    v = convert(a, v, "int") if v.kind == "bool" else v
    if not v.shape:
        return v
    if v.shape[dim] > 64:
        return along(a, "prod", v, dim, keepdim, v.kind)
    shape = kept(v.shape, [dim], keepdim)
    result = a.full(shape, Fraction(1), v.kind)
    for index in range(v.shape[dim]):
        result = times(a, result, a.reshape(a.slice(v, dim, index, index + 1), shape))
    return result


@rule("aten.any.default", "aten.any.dim", "aten.any.dims")
def any_rule(a: Algebra[V], self: V, dim: Dims = None, keepdim: bool = False) -> V:
    """out = (how many are true) > 0"""
    return compared(a, "gt", total(a, convert(a, self, "bool"), dims_of(dim, len(self.shape)), keepdim), 0)


@rule("aten.all.default", "aten.all.dim", "aten.all.dims")
def all_rule(a: Algebra[V], self: V, dim: Dims = None, keepdim: bool = False) -> V:
    """out = (how many are false) = 0"""
    wrong = a.logical_not(convert(a, self, "bool"))
    return compared(a, "eq", total(a, wrong, dims_of(dim, len(self.shape)), keepdim), 0)


@rule("aten.count_nonzero.default", "aten.count_nonzero.dim_IntList")
def count_nonzero(a: Algebra[V], self: V, dim: Dims = None) -> V:
    """out = how many are not 0"""
    return total(a, convert(a, self, "bool"), dims_of(dim, len(self.shape)), False)


def variance(a: Algebra[V], v: V, dims: Sequence[int], correction: Number, keepdim: bool) -> V:
    """sum (v - mean)^2 / (n - correction)."""
    deviation = minus(a, v, mean(a, v, dims, True))
    count = extent(v.shape, dims)
    if count <= correction:
        raise Unsupported("a variance without degrees of freedom")
    return over(a, total(a, square(a, deviation), dims, keepdim), count - correction)


@rule("aten.var.correction")
def var(a: Algebra[V], self: V, dim: Dims = None, *, correction: Number | None = None, keepdim: bool = False) -> V:
    """out = sum (self - mean)^2 / (n - correction), correction 1 if not given"""
    return variance(a, self, dims_of(dim, len(self.shape)), 1 if correction is None else correction, keepdim)


@rule("aten.var.default")
def var_all(a: Algebra[V], self: V, unbiased: bool = True) -> V:
    """out = sum (self - mean)^2 / (n - 1)"""
    return var(a, self, correction=int(unbiased))


@rule("aten.var.dim")
def var_dim(a: Algebra[V], self: V, dim: Dims, unbiased: bool = True, keepdim: bool = False) -> V:
    """out = sum (self - mean)^2 / (n - 1) over dim"""
    return var(a, self, dim, correction=int(unbiased), keepdim=keepdim)


@rule("aten.std.correction")
def std(a: Algebra[V], self: V, dim: Dims = None, *, correction: Number | None = None, keepdim: bool = False) -> V:
    """out = sqrt(var(self))"""
    return root(a, var(a, self, dim, correction=correction, keepdim=keepdim))


@rule("aten.std.default")
def std_all(a: Algebra[V], self: V, unbiased: bool = True) -> V:
    """out = sqrt(var(self))"""
    return root(a, var_all(a, self, unbiased))


@rule("aten.std.dim")
def std_dim(a: Algebra[V], self: V, dim: Dims, unbiased: bool = True, keepdim: bool = False) -> V:
    """out = sqrt(var(self)) over dim"""
    return root(a, var_dim(a, self, dim, unbiased, keepdim))


@rule("aten.var_mean.correction")
def var_mean(
    a: Algebra[V], self: V, dim: Dims = None, *, correction: Number | None = None, keepdim: bool = False
) -> tuple[V, V]:
    """(var, mean)"""
    dims = dims_of(dim, len(self.shape))
    return var(a, self, dim, correction=correction, keepdim=keepdim), mean(a, self, dims, keepdim)


@rule("aten.std_mean.correction")
def std_mean(
    a: Algebra[V], self: V, dim: Dims = None, *, correction: Number | None = None, keepdim: bool = False
) -> tuple[V, V]:
    """(std, mean)"""
    spread, middle = var_mean(a, self, dim, correction=correction, keepdim=keepdim)
    return root(a, spread), middle


def norm(a: Algebra[V], v: V, order: Number, dims: Sequence[int], keepdim: bool) -> V:
    """(sum abs(v)^order)^(1/order); order inf: the largest abs(v); order 0: how many are not 0."""
    if order == 2:
        return root(a, total(a, square(a, v), dims, keepdim))
    size = function(a, "abs", v)
    if order == math.inf:
        return highest(a, size, dims, keepdim)
    if order == -math.inf:
        return lowest(a, size, dims, keepdim)
    if order == 0:
        return as_float(a, total(a, convert(a, v, "bool"), dims, keepdim))
    if order == 1:
        return total(a, size, dims, keepdim)
    power = Fraction(order).limit_denominator(1 << 16)
    if power < 0:
        raise Unsupported(f"a norm of order {order}")
    return a.power(total(a, a.power(size, power), dims, keepdim), 1 / power)


@rule("aten.linalg_vector_norm.default")
def vector_norm(
    a: Algebra[V],
    self: V,
    ord: Number = 2,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
    call: Call,
) -> V:
    """out = (sum abs(self)^ord)^(1/ord); ord inf: the largest abs(self); ord 0: how many are not 0"""
    return norm(a, as_float(a, _in(a, self, dtype, call)), ord, dims_of(dim, len(self.shape)), keepdim)


@rule("aten.norm.Scalar", "aten.norm.ScalarOpt_dtype")
def norm_all(a: Algebra[V], self: V, p: Number | None = 2, *, dtype: DType | None = None, call: Call) -> V:
    """out = (sum abs(self)^p)^(1/p)"""
    order = 2 if p is None else p
    return norm(a, as_float(a, _in(a, self, dtype, call)), order, range(len(self.shape)), False)


@rule("aten.norm.ScalarOpt_dim", "aten.norm.ScalarOpt_dim_dtype")
def norm_dim(
    a: Algebra[V],
    self: V,
    p: Number | None,
    dim: Dims,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
    call: Call,
) -> V:
    """out = (sum abs(self)^p)^(1/p) over dim"""
    order = 2 if p is None else p
    return norm(a, as_float(a, _in(a, self, dtype, call)), order, dims_of(dim, len(self.shape)), keepdim)


@rule("aten.logsumexp.default", "aten.special_logsumexp.default")
def logsumexp(a: Algebra[V], self: V, dim: Dims, keepdim: bool = False) -> V:
    """out = log(sum exp(self)); minus infinity of nothing, as a rank without keys has it"""
    dims = dims_of(dim, len(self.shape))
    if extent(self.shape, dims) == 0:
        return a.full(kept(self.shape, dims, keepdim), -math.inf, "float")
    return a.log(total(a, a.exp(as_float(a, self)), dims, keepdim))


@rule("aten.cumsum.default")
def cumsum(a: Algebra[V], self: V, dim: int, *, dtype: DType | None = None, call: Call) -> V:
    """out[..., i, ...] = sum_j [j <= i] self[..., j, ...]"""
    v = _in(a, self, dtype, call)
    v = convert(a, v, "int") if v.kind == "bool" else v
    if not v.shape:
        return v
    dim = dim_of(dim, len(v.shape))
    count = v.shape[dim]
    columns = a.expand(a.iota(count), (count, count))
    rows = a.expand(a.reshape(a.iota(count), (count, 1)), (count, count))
    mask = a.number(a.compare("le", columns, rows), "float" if v.kind == "float" else "int")
    letters = LETTERS[: len(v.shape)]
    return a.contract([(mask, "z" + letters[dim]), (v, letters)], letters[:dim] + "z" + letters[dim + 1 :])


@rule("aten.cumprod.default")
def cumprod(a: Algebra[V], self: V, dim: int, *, dtype: DType | None = None, call: Call) -> V:
    """The running product along dim: multiplied out up to 16 factors, else closed, batched over the other dims"""
    v = _in(a, self, dtype, call)
    if not v.shape or v.kind == "bool" or not 0 < v.shape[dim_of(dim, len(v.shape))] <= 16:
        return scan(a, "cumprod", v, dim, v.kind)
    dim = dim_of(dim, len(v.shape))
    running = [a.slice(v, dim, 0, 1)]
    for index in range(1, v.shape[dim]):
        running.append(times(a, running[-1], a.slice(v, dim, index, index + 1)))
    return a.concat(running, dim)


def scan(a: Algebra[V], name: str, v: V, dim: int, kind: Kind, attributes: tuple[object, ...] = ()) -> V:
    """A closed function of every line along a dim to a line, batched over the other dims."""
    if not v.shape:
        return a.reshape(scan(a, name, a.reshape(v, (1,)), 0, kind, attributes), ())
    dim = dim_of(dim, len(v.shape))
    letters = LETTERS[: len(v.shape)]
    source = letters[:dim] + "A" + letters[dim + 1 :]
    return a.opaque(name, attributes, [(v, source)], source.replace("A", "B"), v.shape, kind)


@rule("aten.cummax.default")
def cummax(a: Algebra[V], self: V, dim: int) -> tuple[V, V]:
    """values = the largest of the elements so far, closed for lines beyond 64; where it stands: closed, batched over the other dims"""
    return _so_far(a, "cummax", self, dim, highest), scan(a, "cummax.indices", self, dim, "int")


@rule("aten.cummin.default")
def cummin(a: Algebra[V], self: V, dim: int) -> tuple[V, V]:
    """values = the smallest of the elements so far, closed for lines beyond 64; where it stands: closed, batched over the other dims"""
    return _so_far(a, "cummin", self, dim, lowest), scan(a, "cummin.indices", self, dim, "int")


def _so_far(a: Algebra[V], name: str, v: V, dim: int, extreme: Callable[[Algebra[V], V, list[int], bool], V]) -> V:
    """The largest or smallest of every beginning of a line."""
    if not v.shape:
        return v
    dim = dim_of(dim, len(v.shape))
    if not 0 < v.shape[dim] <= 64:
        return scan(a, name, v, dim, v.kind)
    return a.concat([extreme(a, a.slice(v, dim, 0, end), [dim], True) for end in range(1, v.shape[dim] + 1)], dim)


@rule("aten.logcumsumexp.default")
def logcumsumexp(a: Algebra[V], self: V, dim: int, *, call: Call) -> V:
    """out = log(cumsum(exp(self)))"""
    return a.log(cumsum(a, a.exp(as_float(a, self)), dim, call=call))
