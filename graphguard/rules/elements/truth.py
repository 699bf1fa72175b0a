"""Comparisons, logic, and choice by a mask."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from graphguard.relations.algebra import Algebra, Unsupported, V
from graphguard.rules.basis.arithmetic import Number, aligned, compared, is_number
from graphguard.rules.basis.casting import convert
from graphguard.rules.basis.merged_places import chosen
from graphguard.rules.basis.registry import Call, choosing
from graphguard.rules.basis.scalars import exact
from graphguard.rules.basis.type_bounds import is_end, type_of

SYMBOLS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_ENDS = {"ge": -1, "le": 1}  # at which end of the operand's type a comparison always holds


def _comparison(relation: str) -> Callable[..., Any]:
    def compare(a: Algebra[V], self: V, other: Any, *, call: Call) -> V:
        if relation in _ENDS and is_end(a, self, other, type_of(call, "self"), _ENDS[relation]):
            return a.full(self.shape, Fraction(1), "bool")
        return compared(a, relation, self, other)

    compare.__doc__ = f"out = (self {SYMBOLS[relation]} other)"
    compare.__name__ = relation
    return compare


for _relation in SYMBOLS:
    choosing(f"aten.{_relation}.Tensor", f"aten.{_relation}.Scalar")(_comparison(_relation))


@choosing("gg.assume")
def assume(a: Algebra[V], self: V, truth: bool) -> V:
    """out = True: the verdict lists what is assumed of self"""
    return a.full((), Fraction(1), "bool")


@choosing("aten.eq.Tensor", "aten.eq.Scalar")
def eq(a: Algebra[V], self: V, other: Any, *, call: Call) -> V:
    """out = (self = other); with itself: not `isnan`; whether a number is infinite stays closed"""
    if self.kind == "float" and call.argument("self") == call.argument("other"):
        return a.logical_not(isnan(a, self))
    if isinstance(other, float) and math.isinf(other):
        return a.apply("isposinf" if other > 0 else "isneginf", (), [self], "bool")
    return compared(a, "eq", self, other)


@choosing("aten.ne.Tensor", "aten.ne.Scalar")
def ne(a: Algebra[V], self: V, other: Any, *, call: Call) -> V:
    """out = (self ≠ other), the opposite of `eq`"""
    return a.logical_not(eq(a, self, other, call=call))


@choosing("aten.logical_not.default")
def logical_not(a: Algebra[V], self: V) -> V:
    """out = not self"""
    return a.logical_not(convert(a, self, "bool"))


@choosing("aten.bitwise_not.default")
def bitwise_not(a: Algebra[V], self: V) -> V:
    """out = not self; for integers -self - 1"""
    if self.kind == "bool":
        return a.logical_not(self)
    return a.add([a.scale(self, exact(-1)), a.full(self.shape, exact(-1), "int")])


def _truths(a: Algebra[V], self: V, other: Any) -> list[V]:
    if is_number(other):
        other = bool(other)
    return aligned(a, convert(a, self, "bool"), other if isinstance(other, bool) else convert(a, other, "bool"))


def _are_bools(*xs: Any) -> bool:
    return all(isinstance(x, bool) or (not is_number(x) and x.kind == "bool") for x in xs)


@choosing("aten.logical_and.default")
def logical_and(a: Algebra[V], self: V, other: V) -> V:
    """out = self and other"""
    return a.logical_and(*_truths(a, self, other))


@choosing("aten.logical_or.default")
def logical_or(a: Algebra[V], self: V, other: V) -> V:
    """out = self or other"""
    return a.logical_or(*_truths(a, self, other))


@choosing("aten.logical_xor.default")
def logical_xor(a: Algebra[V], self: V, other: V) -> V:
    """out = self and not other, or other and not self"""
    x, y = _truths(a, self, other)
    return a.logical_or(a.logical_and(x, a.logical_not(y)), a.logical_and(y, a.logical_not(x)))


@choosing("aten.bitwise_and.Tensor", "aten.bitwise_and.Scalar", "aten.__and__.Tensor", "aten.__and__.Scalar")
def bitwise_and(a: Algebra[V], self: V, other: Any) -> V:
    """out = self and other, of bools; self mod 2^k for integers and other = 2^k - 1; of other integers closed, elementwise"""
    if isinstance(other, int) and not _are_bools(self, other) and other > 0 and other & (other + 1) == 0:
        return a.remainder(self, other + 1)
    return _bitwise(a, "bitwise_and", logical_and, self, other)


@choosing("aten.bitwise_or.Tensor", "aten.bitwise_or.Scalar", "aten.__or__.Tensor", "aten.__or__.Scalar")
def bitwise_or(a: Algebra[V], self: V, other: Any) -> V:
    """out = self or other, of bools; of integers closed, elementwise"""
    return _bitwise(a, "bitwise_or", logical_or, self, other)


@choosing("aten.bitwise_xor.Tensor", "aten.bitwise_xor.Scalar", "aten.__xor__.Tensor")
def bitwise_xor(a: Algebra[V], self: V, other: Any) -> V:
    """out = self or other but not both, of bools; of integers closed, elementwise"""
    return _bitwise(a, "bitwise_xor", logical_xor, self, other)


def _bitwise(a: Algebra[V], name: str, of_bools: Callable[..., Any], self: V, other: Any) -> V:
    if _are_bools(self, other):
        result: V = of_bools(a, self, other)
        return result
    return a.apply(name, (), aligned(a, self, other, kind="int"), "int")


@choosing("aten.bitwise_right_shift.Tensor", "aten.__rshift__.Tensor")
def right_shift_each(a: Algebra[V], self: V, other: V) -> V:
    """out = floor(self / 2^other): closed, elementwise"""
    return a.apply("right_shift", (), aligned(a, self, other, kind="int"), "int")


@choosing("aten.__rshift__.Scalar", "aten.bitwise_right_shift.Tensor_Scalar")
def right_shift(a: Algebra[V], self: V, other: int) -> V:
    """out = floor(self / 2^other)"""
    return a.floor_divide(self, 2**other)


@choosing("aten.isin.Tensor_Tensor", "aten.isin.Tensor_Scalar", "aten.isin.Scalar_Tensor")
def isin(a: Algebra[V], elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> V:
    """Whether any of test_elements equals an element; for ``invert`` whether none does"""
    if is_number(elements) or is_number(test_elements):
        known, one = (elements, test_elements) if is_number(test_elements) else (test_elements, elements)
        found = compared(a, "eq", known, one)
        found = _any(a, found, len(found.shape)) if is_number(elements) else found
    else:
        tests = a.reshape(test_elements, (math.prod(test_elements.shape),))
        wide = a.reshape(elements, (*elements.shape, 1))
        found = _any(a, compared(a, "eq", wide, tests), 1)
    return a.logical_not(found) if invert else found


def _any(a: Algebra[V], v: V, dims: int) -> V:
    """Whether any holds, over the last dims."""
    rank = len(v.shape)
    counts = a.sum(a.number(v, "int"), range(rank - dims, rank))
    return a.compare("lt", a.full(counts.shape, Fraction(0), "int"), counts)


@choosing("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar", casts=True)
def where(a: Algebra[V], condition: V, self: Any, other: Any) -> V:
    """out = self where condition holds, else other"""
    return chosen(a, condition, self, other)


@choosing("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(a: Algebra[V], self: V, mask: V, value: Any) -> V:
    """out = value where mask holds, else self"""
    filling = value if is_number(value) else convert(a, value, self.kind)
    if is_number(filling) and self.kind == "int":
        filling = int(filling)
    return chosen(a, mask, filling, self)


@choosing("aten.isnan.default")
def isnan(a: Algebra[V], self: V) -> V:
    """Whether self is not a number: stays closed, though no real number is"""
    return a.apply("isnan", (), [self], "bool")


@choosing("aten.isinf.default")
def isinf(a: Algebra[V], self: V) -> V:
    """Whether self is infinite: stays closed"""
    return a.apply("isinf", (), [self], "bool")


@choosing("aten.isposinf.default")
def isposinf(a: Algebra[V], self: V) -> V:
    """Whether self is infinite and above zero: stays closed"""
    return a.apply("isposinf", (), [self], "bool")


@choosing("aten.isneginf.default")
def isneginf(a: Algebra[V], self: V) -> V:
    """Whether self is infinite and below zero: stays closed"""
    return a.apply("isneginf", (), [self], "bool")


@choosing("aten.isfinite.default")
def isfinite(a: Algebra[V], self: V) -> V:
    """Neither infinite nor not-a-number"""
    return a.logical_not(a.logical_or(isnan(a, self), isinf(a, self)))


@choosing("aten.nan_to_num.default")
def nan_to_num(
    a: Algebra[V],
    self: V,
    nan: Number | None = None,
    posinf: Number | None = None,
    neginf: Number | None = None,
    *,
    call: Call,
) -> V:
    """self with not-a-number and the infinities replaced by the given numbers: stays closed"""
    if self.kind != "float":
        return self
    return a.apply("nan_to_num", (nan, posinf, neginf, call.type().dtype), [self], "float")


@choosing("aten.nonzero.default")
def nonzero(a: Algebra[V], self: V) -> V:
    """The positions of what is not 0, one a row, for a tensor that is known"""
    known = a.known(self)
    if known is None:
        raise Unsupported("a shape that depends on the data")
    return a.literal(np.argwhere(known))


@choosing("aten.masked_select.default", "aten.nonzero_numpy.default")
def data_dependent(a: Algebra[V], self: V, *mask: object) -> V:
    """Unsupported: the shape depends on the data"""
    raise Unsupported("a shape that depends on the data")


@choosing("aten.equal.default", "aten.allclose.default", "aten.is_nonzero.default", "aten._local_scalar_dense.default")
def to_host(a: Algebra[V], self: V, *other: object) -> V:
    """Unsupported: a tensor's number read by the program"""
    raise Unsupported("a number that the program reads from a tensor")
