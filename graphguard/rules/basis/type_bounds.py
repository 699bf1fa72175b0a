"""The ends of float types: what is no larger than the largest number of its type is every number that is not infinite."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final

from graphguard.relations.algebra import Algebra, Unsupported, V
from graphguard.rules.basis.arithmetic import is_number
from graphguard.rules.basis.registry import Call

LARGEST: Final = {
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float32": 3.4028234663852886e38,
    "float64": 1.7976931348623157e308,
}


def is_end(a: Algebra[V], v: V, bound: Any, dtype: str, sign: int) -> bool:
    """Whether a bound is the largest number of v's type (``sign`` 1) or its opposite (-1), so that no element is beyond: v holds no infinity."""
    if v.kind != "float" or not is_number(bound) or float(bound) != sign * LARGEST.get(dtype, 0.0):
        return False
    try:
        a.scale(v, Fraction(0))
    except Unsupported:
        return False
    return True


def type_of(call: Call, parameter: str) -> str:
    """The element type of an operand."""
    return call.graph.types[call.argument(parameter)].dtype
