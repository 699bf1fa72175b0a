"""Conversions between kinds and element types.

Every float type is the reals: widening changes nothing, narrowing is the unknown function ``cast`` of the value and of the type it is
rounded to.  Integers of 64 bits are unbounded, as are those of 32, which is assumed where they may not fit; narrower ones that a cast or arithmetic may not fit in are the unknown
function ``cast`` as well; an int becomes the float of the same value, rounded only in types of fewer than 24 bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import Final

import numpy as np

from graphguard.relations.algebra import Algebra, Kind, Unsupported, V
from graphguard.rules.basis.registry import COMPLEX_PART, FLOAT_BITS, INTEGER_BOUNDS, WIDE_BOUNDS, Call, holds, kind_of

#: Types whose numbers below the largest power of two are as IEEE 754 has them.
_IEEE: Final = frozenset(("float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"))
#: Types that hold what float32 has rounded away.
DOUBLES: Final = frozenset(("float64", "complex128"))
#: Float types in which not all whole numbers that programs count to are.
NARROW: Final = frozenset(dtype for dtype, bits in FLOAT_BITS.items() if bits[0] < FLOAT_BITS["float32"][0])
#: Types whose elements have one part.
_KINDS: Final[dict[str, Kind]] = {
    name: kind_of(name) for name in (*FLOAT_BITS, *INTEGER_BOUNDS, "int32", "int64", "bool")
}
#: A type of scales: powers of two alone.
WITHOUT_ZERO: Final = "float8_e8m0fnu"
#: The element type that a graph gives to a result that the call does not have.
ABSENT: Final = "none"


def convert(a: Algebra[V], v: V, kind: Kind) -> V:
    """The same elements as another kind: truth is 1 or 0, a number is true where it is not 0, a float becomes an int by truncation."""
    if v.kind == kind:
        return v
    if kind == "bool":
        return a.logical_not(a.compare("eq", v, a.full(v.shape, Fraction(0), v.kind)))
    return a.number(v, kind)


def cast(a: Algebra[V], v: V, source: str, target: str) -> V:
    """A tensor of type ``source`` as one of type ``target``."""
    result = convert(a, v, kind_of(target))
    if is_bounded(target) and kind_of(source) != "bool":
        return result if _fits(source, target) else wrapped(a, result, target)
    if target not in FLOAT_BITS or kind_of(source) == "bool":
        return result
    if source in FLOAT_BITS:
        return result if holds(target, source) else rounded(a, result, target)
    return rounded(a, result, target) if target in NARROW else result


def rounded(a: Algebra[V], v: V, target: str) -> V:
    """The nearest number of a float type: of whole numbers itself or what it is rounded to, where that is known; of all else an unknown function."""
    most = a.most_counted(v, _digits(target))
    if most is None or most == math.inf:
        return v if a.holds(v, target) else unknown_cast(a, v, target)
    return _of_type(a, v, target, most)


def held(a: Algebra[V], v: V, dtype: str) -> V:
    """New numbers in a type: what rests on counts and positions alone is rounded in a narrow one, as nothing that it is made of was rounded before."""
    most = a.most_counted(v, _digits(dtype)) if dtype in NARROW else None
    return v if most is None else _of_type(a, v, dtype, most)


def _of_type(a: Algebra[V], v: V, target: str, most: float) -> V:
    """Numbers that rest on no float, as those of a type; ``most`` is how large whole ones can be."""
    if most <= 1 << FLOAT_BITS[target][0] and target != WITHOUT_ZERO:
        return v
    known = distinct(a, v) if target in _IEEE else None
    near = nearest(known, *FLOAT_BITS[target]) if known is not None else None
    return unknown_cast(a, v, target) if near is None else a.expand(a.literal(near), v.shape)


def distinct(a: Algebra[V], v: V) -> np.ndarray | None:
    """The elements of a value that depends on no unknown, of extent 1 where a dim repeats them, so that how often it does never decides what is known."""
    for dim, extent in enumerate(v.shape):
        if extent > 1 and a.repeats(v, dim):
            v = a.slice(v, dim, 0, 1)
    return a.known(v)


def as_single(a: Algebra[V], v: V) -> V:
    """Numbers in float32 that a call on doubles takes: what is known of them, as float32 has rounded it.

    Beside other numbers in float32 they are what was rounded: two programs that write 0.1 there mean one number, whatever type they make it in.
    """
    if v.kind != "float":
        return v
    known = distinct(a, v)
    if known is None:
        return v if a.most_counted(v, _digits("float32")) is None else unknown_cast(a, v, "float32")
    near = nearest(known, *FLOAT_BITS["float32"]) if np.isfinite(known).all() else None
    return v if near is None or bool((near == known).all()) else a.expand(a.literal(near), v.shape)


@cache
def _digits(dtype: str) -> int:
    """How many binary digits behind the point a float type's least number above zero has (IEEE 754, section 3.3)."""
    bits, exponent_bits = FLOAT_BITS[dtype]
    return (1 << exponent_bits - 1) - 3 + bits


def unknown_cast(a: Algebra[V], v: V, target: str) -> V:
    """What numbers of which nothing is known are rounded to."""
    return a.apply("cast", (target,), [v], "float")


def nearest(numbers: np.ndarray, bits: int, exponent_bits: int) -> np.ndarray | None:
    """The nearest numbers of so many significant bits and exponent bits, the even one of two; None where one of them may be too large (IEEE 754, section 4.3)."""
    numbers = numbers.astype(np.float64)
    largest = (1 << exponent_bits - 1) - 1
    _, exponents = np.frexp(numbers)
    steps = np.exp2(np.maximum(exponents, 2 - largest) - float(bits))
    found = np.rint(numbers / steps) * steps
    fits = np.isfinite(numbers) & (np.abs(found) < 2.0 ** (largest + 1))
    return found if bool(fits.all()) else None


def is_bounded(dtype: str) -> bool:
    """Whether integers of a type may be too large for it."""
    return dtype in INTEGER_BOUNDS or dtype in WIDE_BOUNDS


def wrapped(a: Algebra[V], v: V, target: str) -> V:
    """Integers as those of a narrow type: the same where they are known to fit, else an unknown function of them; of a wide type the same, where that is assumed."""
    low, high = INTEGER_BOUNDS.get(target) or WIDE_BOUNDS[target]
    if target in WIDE_BOUNDS and _is_counted(a, v, high):
        return v
    known = distinct(a, v)
    if known is not None and known.size and low <= known.min() and known.max() < high:
        return v
    if known is None and target in WIDE_BOUNDS:
        a.assume(f"integers do not overflow {target}")
        return v
    return a.apply("cast", (target,), [v], "int")


def _is_counted(a: Algebra[V], v: V, high: int) -> bool:
    """Whether counts and positions are seen to stay below a number, which costs less than to know them."""
    most = a.most_counted(v, 0)
    return most is not None and most < high


def _fits(source: str, target: str) -> bool:
    """Whether every number of a type is one of an integer type with bounds."""
    bounds = {**INTEGER_BOUNDS, **WIDE_BOUNDS}
    if source not in bounds:
        return False
    (low, high), (least, most) = bounds[source], bounds[target]
    return least <= low and high <= most


def are_settled(a: Algebra[V], call: Call, results: Sequence[V]) -> bool:
    """Whether elements that were only moved are what the graph states, since the operands are of one type with the results; they are held in it."""
    types, node = call.graph.types, call.node
    wanted = [types[out] for out in node.outs]
    dtype = wanted[0].dtype if wanted else ABSENT
    kind = _KINDS.get(dtype)
    if kind is None or dtype == WITHOUT_ZERO or len(results) != len(wanted):
        return False
    for var in node.reads:
        if types[var].dtype != dtype:
            return False
    for made, result in zip(wanted, results, strict=True):
        if made.dtype != dtype or result.shape != made.shape or result.kind != kind:
            return False
    if kind == "float":
        for result in results:
            a.hold(result, dtype)
    return True


def settle(
    a: Algebra[V], call: Call, results: Sequence[V | None], rounds: bool, computes: bool = False
) -> tuple[V, ...]:
    """Results in the types that the graph states; raises ``Unsupported`` where shapes do not agree.

    ``rounds``: a narrower float type than PyTorch's promotion gives rounds them.  ``computes``: they are new numbers, which need not fit in a narrow integer type.
    A result that this call does not have (None: a gradient that was not asked for) keeps its place where the graph gives it one.
    """
    count = len(call.node.outs)
    if len(results) != count:
        results = [result for result in results if result is not None]
        if len(results) != count:
            raise Unsupported(f"{call.node.op} has {count} results, its rule {len(results)}")
    return tuple([_settle_one(a, call, index, result, rounds, computes) for index, result in enumerate(results)])


def _settle_one(a: Algebra[V], call: Call, index: int, result: V | None, rounds: bool, computes: bool) -> V:
    wanted = call.type(index)
    if wanted.dtype == ABSENT:
        return a.full((0,), Fraction(0), "float")
    if result is None:
        raise Unsupported(f"{call.node.op} has a result {index} that its rule does not give")
    if wanted.dtype in COMPLEX_PART:
        return result
    if result.shape != wanted.shape:
        raise Unsupported(f"{call.node.op} gives shape {wanted.shape}, its rule {result.shape}")
    result = convert(a, result, kind_of(wanted.dtype))
    if computes and is_bounded(wanted.dtype):
        return wrapped(a, result, wanted.dtype)
    if rounds and wanted.dtype in FLOAT_BITS:
        promoted = _promoted(call)
        if promoted is not None and not holds(wanted.dtype, promoted):
            return rounded(a, result, wanted.dtype)
    if wanted.dtype in NARROW and a.most_counted(result, _digits(wanted.dtype)) is not None:
        return rounded(
            a, result, wanted.dtype
        )  # no operand that was rounded before tells that the specification has them so
    if wanted.dtype in FLOAT_BITS:
        a.hold(result, wanted.dtype)
    return result


def _promoted(call: Call) -> str | None:
    """The float type that PyTorch's promotion gives: tensors with dims decide before 0-dim ones; None where no operand is a float."""
    types = call.graph.types
    return _widest(tuple([(bool(kind.shape), kind.dtype) for kind in map(types.__getitem__, call.node.operands())]))


@cache
def _widest(types: tuple[tuple[bool, str], ...]) -> str | None:
    """The same by which operands have dims, and their element types."""
    floats = [(shaped, dtype) for shaped, dtype in types if dtype in FLOAT_BITS]
    ranked = any(shaped for shaped, _ in floats)
    widest = None
    for shaped, dtype in floats:
        if shaped == ranked and (widest is None or not holds(widest, dtype)):
            widest = dtype
    return widest
